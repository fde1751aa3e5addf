#include "kullback/distill/stored_responses.h"

namespace kullback {

std::vector<Response> stored_responses(const DistillationState& state, const std::string& name) {
  std::vector<Response> responses;
  if (!state.values.contains(name)) return responses;
  for (const Json& kept : state.values.at(name)) {
    responses.push_back({.example = kept.at("example").get<int64_t>(),
                         .tokens = kept.at("tokens").get<std::vector<int32_t>>(),
                         .source = kept.at("source").get<ResponseSource>(),
                         .numbers = kept.at("numbers").get<std::map<std::string, std::vector<double>>>(),
                         .teacher_tokens = kept.at("teacher_tokens").get<std::vector<int32_t>>()});
  }
  return responses;
}

void store_responses(DistillationState& state, const std::string& name, const std::vector<Response>& responses) {
  Json list = Json::array();
  for (const Response& r : responses) {
    list.push_back({{"example", r.example},
                    {"tokens", r.tokens},
                    {"source", r.source},
                    {"numbers", r.numbers},
                    {"teacher_tokens", r.teacher_tokens}});
  }
  state.values[name] = std::move(list);
}

}  // namespace kullback
