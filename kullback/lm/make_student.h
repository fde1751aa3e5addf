#pragma once

#include <string>
#include <vector>

#include "kullback/lm/model.h"

namespace kullback {

/// Which of a teacher's layers a student keeps: "every-2" takes layers 0, 2, 4, ...; "0,2,5" those. An Error names the option
/// --student-layers.
std::vector<int64_t> student_layers(const std::string& text, int64_t layers);

/// A student of some of the teacher's layers, in this order, with copies of their weights and of all that is no layer.
Model make_student(const Model& teacher, const std::vector<int64_t>& layers);

}  // namespace kullback
