// How the cases of pd's golden fixture are computed.

#include <unistd.h>

#include <filesystem>

#include <ATen/ATen.h>

#include "kullback/base/registry.h"
#include "kullback/distill/pd.h"
#include "kullback/io/files.h"
#include "kullback/train/check.h"

namespace kullback {
namespace {

using at::Tensor;
namespace fs = std::filesystem;

PdOptions options_of(const CheckCase& c, std::initializer_list<const char*> others) {
  Json own = c.options();
  for (const char* name : others) own.erase(name);
  PdOptions o;
  find_method("pd").options->assign(&o, own, c.where());
  return o;
}

Rows logits(CheckCase& c, const std::string& name) {
  Rows rows;
  const Tensor all = c.tensor(name).to(at::kDouble);
  rows.hidden = all.reshape({-1, all.size(-1)});
  return rows;
}

Tensor kept_mass(const PdTarget& t) { return t.logps.exp().masked_fill(~t.kept, 0).sum(1); }

CheckOutputs truncate_case(CheckCase& c) {
  const PdOptions o = options_of(c, {});
  const PdTarget t = pd_truncate(logits(c, "teacher_logits"), o.p, o.k);
  const auto shape = c.tensor("teacher_logits").sizes().slice(0, 2).vec();
  const auto shaped = [&](const Tensor& values) {
    std::vector<int64_t> all = shape;
    if (values.dim() == 2) all.push_back(values.size(1));
    return values.reshape(all);
  };
  const Tensor counts = t.kept.sum(1), mass = kept_mass(t);
  return {{"n", shaped(counts)},
          {"ids", shaped(t.ids.masked_fill(~t.kept, -1))},
          {"target", shaped(pd_law(t, o))},
          {"kept_mass", shaped(mass)},
          {"kl_of_truncation_at_tau_1", shaped(-mass.log())},
          {"mean_kept", counts.to(at::kDouble).mean()}};
}

CheckOutputs loss_case(CheckCase& c) {
  const PdOptions o = options_of(c, {"alpha"});
  const Tensor mask = c.mask("mask"), places = mask.reshape(-1).nonzero().squeeze(1);
  const Tensor ids = c.tensor("ids").flatten(0, 1).index_select(0, places);
  const PdTarget target{.ids = ids.clamp_min(0),
                        .logps = c.tensor("logprobs").to(at::kDouble).flatten(0, 1).index_select(0, places),
                        .kept = ids >= 0};
  const PdLoss l = pd_loss(logits(c, "student_logits"), target, c.tensor("labels"), mask, c.option("alpha", 0.9), o);
  return {{"loss", l.loss}, {"lm_loss", l.lm_loss}, {"kd_loss", l.kd_loss}, {"target_entropy", l.target_entropy}};
}

CheckOutputs schedule_case(CheckCase& c) {
  const PdOptions o = [&] {
    PdOptions made;
    const Json named{{"alpha_schedule", c.option<std::string>("kind", "wsd")}};
    find_method("pd").options->assign(&made, named, c.where());
    return made;
  }();
  const auto steps = c.option<int64_t>("steps", 1);
  std::vector<double> values;
  for (int64_t s = 0; s < steps; ++s) {
    values.push_back(pd_schedule(o.alpha_schedule, s, steps, c.option("max", 1.0), c.option("end", 0.0),
                                 c.option("warmup", o.alpha_warmup), c.option("decay", o.alpha_decay),
                                 c.option<int64_t>("period", o.alpha_period)));
  }
  return {{"value", at::tensor(values, at::kDouble)}};
}

/// A file of this process alone, gone with this object.
struct Temporary {
  fs::path path = fs::temp_directory_path() / fmt::format("kullback-check-{}.store", getpid());
  ~Temporary() { fs::remove(path); }
};

std::string to_hex(const std::string& bytes) {
  std::string text;
  for (const char b : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(b));
  return text;
}

/// What is read back of a store, in the fixture's names.
void read_back(const TeacherStore& store, double temperature, CheckOutputs& out) {
  Json ids = Json::array(), codes = Json::array();
  std::vector<double> laws, logps, mass, labels;
  for (int64_t r = 0; r < store.rows(); ++r) {
    const TeacherRow row = store.row(r);
    ids.push_back(row.ids), codes.push_back(store_codes(row, store.format()));
    const PdTarget one{.ids = at::tensor(std::vector<int64_t>(row.ids.begin(), row.ids.end()), at::kLong).unsqueeze(0),
                       .logps = at::tensor(row.logps, at::kDouble).unsqueeze(0),
                       .kept = at::ones({1, std::ssize(row.ids)}, at::kBool)};
    const Tensor law = pd_law(one, {.temperature = temperature}).contiguous();
    laws.insert(laws.end(), law.const_data_ptr<double>(), law.const_data_ptr<double>() + law.numel());
    logps.insert(logps.end(), row.logps.begin(), row.logps.end());
    mass.push_back(kept_mass(one).item<double>()), labels.push_back(row.label_logp);
  }
  out["ids=" + ids.dump()] = Tensor(), out["codes=" + codes.dump()] = Tensor();
  out["decoded_target"] = out["target"] = at::tensor(laws, at::kDouble);
  out["logprobs"] = at::tensor(logps, at::kDouble);
  out["kept_mass"] = at::tensor(mass, at::kDouble), out["label_logprob"] = at::tensor(labels, at::kDouble);
}

CheckOutputs encode_case(CheckCase& c) {
  const Rows teacher = logits(c, "teacher_logits");
  const TeacherStoreFormat format{.vocabulary = teacher.hidden.size(1),
                                  .k = c.option<int64_t>("k", 50),
                                  .p = c.option("p", 0.95),
                                  .id_bits = c.option("id_bits", 0),
                                  .value_bits = c.option("value_bits", 16),
                                  .delta_exp = c.option("delta_exp", 11),
                                  .labels = c.option("flags", 0) == 1,
                                  .rows_per_block = c.option<int64_t>("rows_per_block", 1024)};
  const double temperature = c.option("temperature", 1.0);
  const PdTarget target = pd_truncate(teacher, format.p, format.k);
  const std::vector<TeacherRow> rows = pd_rows(target, label_logps(teacher, c.tensor("labels")));
  const Temporary file;
  TeacherStoreWriter writer(file.path, format);
  for (const TeacherRow& row : rows) writer.append(row);
  writer.finish();
  const std::string bytes = read_text(file.path);
  const StoreBounds bounds = store_bounds(format, temperature);
  CheckOutputs out{{"file_hex=" + to_hex(bytes), {}},
                   {"bytes", at::scalar_tensor(static_cast<double>(bytes.size()), at::kDouble)},
                   {"bound_log_prob", at::scalar_tensor(bounds.log_probability, at::kDouble)},
                   {"bound_kl", at::scalar_tensor(bounds.kl, at::kDouble)},
                   {"bound_tv", at::scalar_tensor(bounds.total_variation, at::kDouble)}};
  read_back(TeacherStore::open(file.path), temperature, out);
  return out;
}

CheckOutputs decode_case(CheckCase& c) {
  const auto hex = c.input("file_hex").get<std::string>();
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  const Temporary file;
  write_file(file.path, bytes);
  CheckOutputs out;
  read_back(TeacherStore::open(file.path), c.option("temperature", 1.0), out);
  return out;
}

const RegisteredCheck truncate_check{"pd", "truncate", truncate_case};
const RegisteredCheck loss_check{"pd", "loss", loss_case};
const RegisteredCheck schedule_check{"pd", "schedule", schedule_case};
const RegisteredCheck encode_check{"pd", "encode", encode_case};
const RegisteredCheck decode_check{"pd", "decode", decode_case};

}  // namespace
}  // namespace kullback
