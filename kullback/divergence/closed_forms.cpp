#include "kullback/divergence/closed_forms.h"

#include <algorithm>
#include <cmath>

#include "kullback/base/error.h"
#include "kullback/divergence/definition.h"

namespace kullback::detail {
namespace {

/// scale (S - 1) / (a (a - 1)), S the power sum; its limits are the KLs.
double alpha_divergence(const ClosedForms& forms, double a, double scale = 1) {
  if (a == 1) return scale * forms.kl;
  if (a == 0) return scale * forms.reverse_kl;
  return scale * std::expm1(forms.log_power_sum(a)) / (a * (a - 1));
}

}  // namespace

double from_closed_forms(const Divergence& divergence, const ClosedForms& forms, const char* what) {
  const std::string& family = divergence.definition().family;
  const double x = divergence.definition().parameter;
  const auto value = [&]() -> double {
    if (family == "kl") return forms.kl;
    if (family == "reverse-kl") return forms.reverse_kl;
    if (family == "jeffreys") return forms.kl + forms.reverse_kl;
    if (family == "symmetric-kl")
      return x == 0 ? forms.kl : x == 1 ? forms.reverse_kl : (1 - x) * forms.kl + x * forms.reverse_kl;
    if (family == "alpha") return alpha_divergence(forms, x);
    if (family == "amari") return alpha_divergence(forms, (1 - x) / 2);
    if (family == "cressie-read") return alpha_divergence(forms, x + 1);
    if (family == "chi2") return alpha_divergence(forms, 2, 2);
    if (family == "neyman-chi2") return alpha_divergence(forms, -1, 2);
    if (family == "hellinger") return -2 * std::expm1(forms.log_power_sum(0.5));
    if (family == "tsallis") return alpha_divergence(forms, x, x);
    if (family == "renyi") return x == 1 ? forms.kl : forms.log_power_sum(x) / (x - 1);
    if (family == "bhattacharyya") return -forms.log_power_sum(0.5);
    fail(
        "{} between {} has no closed form; there are kl, reverse-kl, jeffreys, symmetric-kl, alpha, amari, "
        "cressie-read, chi2, "
        "neyman-chi2, hellinger, tsallis, renyi and bhattacharyya",
        divergence.name(), what);
  };
  const double d = value();
  return std::isnan(d) ? d : std::max(0.0, d);
}

}  // namespace kullback::detail
