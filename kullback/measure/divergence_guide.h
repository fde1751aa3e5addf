#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kullback/base/json.h"
#include "kullback/divergence/divergence.h"
#include "kullback/report/plot.h"

namespace kullback {

/// The normal law, cut to outcomes 0, 1, 2, ..., that a student comes to which is fitted to a teacher of two modes.
struct Landing {
  double mean = 0, deviation = 0;
  std::vector<double> law = {};  ///< its probabilities
  double value = 0;              ///< the divergence that is left
};

/// What is worth knowing of a divergence before learning under it, all of it computed from the divergence itself but `when`.
struct DivergenceGuide {
  DivergenceInfo info;
  Divergence divergence;
  std::string when = {};                ///< when to take it, and when not
  bool symmetric = false;               ///< D(p||q) = D(q||p), tried on a few laws
  double forgotten = 0;                 ///< D((1/2, 1/2) || (1, 0)): q says never what p says half the time
  double invented = 0;                  ///< D((1, 0) || (1/2, 1/2)): q says half the time what p says never
  double disjoint = 0;                  ///< D((1, 0) || (0, 1))
  double near = 0;                      ///< D / chi-squared of two close laws; f''(1) / 2 of an f-divergence
  std::vector<double> teacher = {};     ///< the two modes
  Landing covering = {}, seeking = {};  ///< the students with the least D(teacher||student) and D(student||teacher)
};

/// By a name that `divergence()` takes, such as "kl" or "js:0.3". Error with a suggestion if there is none.
DivergenceGuide divergence_guide(std::string_view name);

/// Whether the word before the colon names a divergence.
bool names_divergence(std::string_view name);

/// The page as Markdown.
std::string explain(const DivergenceGuide& guide);
Json guide_json(const DivergenceGuide& guide);
/// The teacher's two modes and both students.
Plot landing_plot(const DivergenceGuide& guide);

}  // namespace kullback
