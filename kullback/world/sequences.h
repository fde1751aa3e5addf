#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace kullback {

/// Every response of a small vocabulary. Token 0 ends a response; one that has not ended after `length` tokens is cut there.
///
/// A prefix is what a policy has said so far: token sequences without the end token, shorter than `length`, numbered by
/// length and then as numbers in base `branching()`. A response is numbered by the prefix that it ends after; those that
/// are cut come last, in the same order.
struct SequenceSpace {
  int64_t vocabulary = 3;  ///< V
  int64_t length = 3;      ///< L: most tokens of a response, the end token counted
  bool ends = true;        ///< false: there is no end token, and every response has L tokens

  int64_t branching() const { return ends ? vocabulary - 1 : vocabulary; }  ///< tokens that go on
  int64_t prefixes() const;                                                 ///< P
  int64_t prefixes_of(int64_t tokens) const;                                ///< how many prefixes have so many tokens
  int64_t responses() const;                                                ///< R
};

/// The tokens of all responses, and which prefix each of them follows.
struct SequenceTable {
  at::Tensor tokens;    ///< [R,L] int64; 0 beyond the end
  at::Tensor prefixes;  ///< [R,L] int64: the row that predicts each token; 0 beyond the end
  at::Tensor mask;      ///< [R,L] bool: true at the response's tokens, the end token among them
};
SequenceTable sequence_table(const SequenceSpace& space);

/// The tokens of a prefix, without the end token.
std::vector<int64_t> prefix_tokens(const SequenceSpace& space, int64_t prefix);

/// A response for people: "1 2 ." with the end token as a point; "1 2 1" was cut; "." is the empty one.
std::string response_text(const SequenceSpace& space, const SequenceTable& table, int64_t response);

/// Log-probabilities of all responses under rows of log-probabilities: [C,P,V] -> [C,R], differentiable.
at::Tensor response_logps(const SequenceSpace& space, const at::Tensor& row_logps);

/// ln of the probability that a response begins with each prefix: [C,P,V] -> [C,P], differentiable.
at::Tensor prefix_logps(const SequenceSpace& space, const at::Tensor& row_logps);

/// The rows that make a law of responses, the inverse of response_logps: [C,R] -> [C,P,V]. Rows after a prefix of
/// probability 0 are uniform.
at::Tensor conditional_logps(const SequenceSpace& space, const at::Tensor& logps);

}  // namespace kullback
