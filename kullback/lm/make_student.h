#pragma once

#include <string>
#include <vector>

#include "kullback/lm/model.h"

namespace kullback {

/// What a student is made of.
struct StudentShape {
  /// Each of its layers is the mean of these layers of the teacher.
  std::vector<std::vector<int64_t>> layers;
  /// Of the hidden states, of which the first are taken; heads and the MLP become fewer alike. 0: the teacher's.
  int64_t width = 0;
};

/// Which of a teacher's layers a student's are made of: "every-2" takes layers 0, 2, 4, ...; "0,2,5" those; "mean-2" the means
/// of 0 and 1, of 2 and 3, ... An Error names the option --student-layers.
std::vector<std::vector<int64_t>> student_layers(const std::string& text, int64_t layers);

/// A student with the teacher's weights, of its adapters none. An Error names the option at fault.
Model make_student(const Model& teacher, const StudentShape& shape);

}  // namespace kullback
