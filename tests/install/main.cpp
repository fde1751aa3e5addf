// A user's program against the installed library: KL((1/2, 1/2) || (3/4, 1/4)).
#include <ATen/ATen.h>
#include <kullback/divergence/head.h>

#include <cstdio>

int main() {
  const kullback::Rows policy{.hidden = at::zeros({1, 2}, at::kDouble)};
  const kullback::Rows reference{.hidden = at::log(at::tensor({0.75, 0.25}, at::kDouble)).unsqueeze(0)};
  const auto statistics =
      kullback::head_statistics(policy, reference, {.divergences = {kullback::divergence("kl").from_policy()}});
  std::printf("%.9f\n", statistics.divergences[0].item<double>());
}
