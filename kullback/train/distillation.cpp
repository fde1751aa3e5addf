#include "kullback/train/distillation.h"

namespace kullback {

std::string source_name(ResponseSource source) {
  switch (source) {
    case ResponseSource::data: return "data";
    case ResponseSource::teacher: return "teacher";
    case ResponseSource::student: return "student";
    case ResponseSource::both: return "both";
  }
  return "";
}

std::vector<std::string> DistillationNeeds::in_words() const {
  std::vector<std::string> words;
  if (teacher) {
    words.emplace_back(other_tokenizer ? "a teacher, of another tokenizer perhaps: its rows of logits"
                                       : "a teacher of the same tokenizer: its rows of logits");
  }
  if (draws_from_teacher()) words.emplace_back("responses drawn from the teacher");
  if (draws_from_student()) words.emplace_back("responses drawn from the student as it is trained");
  if (sources.both > 0) words.emplace_back("responses that teacher and student draw together");
  if (layers) words.emplace_back("hidden states of every layer of both models");
  if (other_model) words.emplace_back("a third, public model");
  if (!reward.empty()) words.emplace_back("a reward of each response");
  if (text) words.emplace_back("plain text too, where it is given");
  return words;
}

}  // namespace kullback
