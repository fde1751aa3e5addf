#pragma once

#include "kullback/lm/model.h"

namespace kullback {

/// Gives a student with the teacher's vocabulary one of its own: each row of the embedding, and of a head that is not tied to
/// it, is the mean of the student's former rows of all tokens whose text is split into pieces with that one among them; rows of
/// pieces that no token needs are random. Kolesnikova et al. 2022, arXiv 2205.02340.
void take_vocabulary(Model& student, const Tokenizer& tokenizer, uint64_t seed);

}  // namespace kullback
