#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "cli/program.h"
#include "kullback/base/error.h"
#include "kullback/base/suggest.h"
#include "kullback/distill/record.h"
#include "kullback/io/jsonl.h"
#include "kullback/report/progress.h"
#include "kullback/report/table.h"

namespace kullback {
namespace {

struct PrintOptions {
  bool json = false;
};

const Options<PrintOptions>& print_options() {
  static const auto options = Options<PrintOptions>().option("json", &PrintOptions::json, "print one JSON object");
  return options;
}

Command describe_record(RecordOptions& record, DataOptions& data, PrintOptions& print) {
  Command command("teacher record", "keep the top of a teacher's rows over a data file",
                  "Runs the teacher over the responses of a data file and keeps the likeliest tokens of each row with "
                  "their\nlog-probabilities, in a file that `kullback distill --teacher-record` reads instead of a "
                  "teacher. An\ninterrupted recording goes on when the command is given again.");
  command.options("Recording", record_options(), &record)
      .options("Data", data_options(), &data)
      .options("Output", print_options(), &print);
  command.example("kullback teacher record --teacher smollm2-135m-instruct --data rows.jsonl --output rows.teacher");
  return command;
}

struct InspectOptions {
  int64_t row = -1;
};

const Options<InspectOptions>& inspect_options() {
  static const auto options = Options<InspectOptions>().option("row", &InspectOptions::row, at_least(-1),
                                                               "show what is kept of this row, from 0; -1: of none");
  return options;
}

Command describe_inspect(InspectOptions& options, std::vector<std::string>& files, PrintOptions& print) {
  Command command("teacher inspect", "what a store of a teacher's rows holds; checks all of it");
  command.arguments("FILE", &files, "a store that `kullback teacher record` has written", 1, 1)
      .options("Inspect", inspect_options(), &options)
      .options("Output", print_options(), &print)
      .example("kullback teacher inspect rows.teacher --row 0");
  return command;
}

Json format_json(const TeacherStoreFormat& f, int64_t rows, int64_t bytes) {
  const StoreBounds bounds = store_bounds(f, 1);
  return {{"rows", rows},
          {"vocabulary", f.vocabulary},
          {"k", f.k},
          {"p", f.p},
          {"bytes", bytes},
          {"decoding_error",
           {{"log_probability", bounds.log_probability}, {"kl", bounds.kl}, {"tv", bounds.total_variation}}}};
}

void print_format(const TeacherStoreFormat& f, int64_t rows, int64_t bytes) {
  const StoreBounds bounds = store_bounds(f, 1);
  fmt::print("rows            {}\nvocabulary      {}\nkept            at most {} tokens, or mass {:.4g}\n", rows,
             f.vocabulary, f.k, f.p);
  fmt::print("size            {} ({:.1f} bytes a row; full rows of float32 would take {})\n",
             bytes_text(static_cast<double>(bytes)),
             static_cast<double>(bytes) / std::max<double>(1, static_cast<double>(rows)),
             bytes_text(4.0 * static_cast<double>(rows) * static_cast<double>(f.vocabulary)));
  fmt::print("decoding error  at most {:.2g} of a log-probability, KL {:.2g} nats, TV {:.2g} (temperature 1)\n",
             bounds.log_probability, bounds.kl, bounds.total_variation);
}

int record(const std::vector<std::string>& arguments) {
  RecordOptions options;
  DataOptions data;
  PrintOptions printing;
  if (!describe_record(options, data, printing).parse(arguments)) return exit_success;
  for (const auto& [name, value] :
       {std::pair{"teacher", options.teacher}, {"data", data.data}, {"output", options.output}}) {
    if (value.empty()) fail("kullback teacher record: --{} is missing", name);
  }
  std::optional<Progress> progress;
  const RecordResult result = record_teacher(options, data, [&](int64_t done, int64_t total) {
    if (!progress) progress.emplace("record", total);
    progress->update(done);
  });
  if (progress) progress->finish();
  if (result.interrupted) {
    fmt::print(stderr, "stopped after row {}; the same command goes on from the last whole block\n", result.rows);
    return exit_interrupted;
  }
  if (printing.json) {
    Json json = format_json(result.format, result.rows, result.bytes);
    json["measured"] = {
        {"rows", result.measured},
        {"tokens_a_row", result.kept},
        {"truncation", {{"kl", result.truncation_kl}, {"tv", result.truncation_tv}}},
        {"decoding",
         {{"log_probability", result.decoding_logp}, {"kl", result.decoding_kl}, {"tv", result.decoding_tv}}}};
    fmt::print("{}\n", json.dump(1));
    return exit_success;
  }
  print_format(result.format, result.rows, result.bytes);
  fmt::print(
      "measured        on {} rows: {:.1f} tokens a row; cutting the rows costs KL(kept || full) {:.4g} nats and TV "
      "{:.4g}\n                (means); storing what is kept costs at most KL {:.2g} nats, TV {:.2g}, and {:.2g} of a "
      "log-probability\n",
      result.measured, result.kept, result.truncation_kl, result.truncation_tv, result.decoding_kl, result.decoding_tv,
      result.decoding_logp);
  return exit_success;
}

int inspect(const std::vector<std::string>& arguments) {
  InspectOptions options;
  std::vector<std::string> files;
  PrintOptions printing;
  if (!describe_inspect(options, files, printing).parse(arguments)) return exit_success;
  const TeacherStore store = TeacherStore::open(files[0]);
  store.check();
  double tokens = 0, mass = 0, kl = 0;
  for (int64_t r = 0; r < store.rows(); ++r) {
    const TeacherRow row = store.row(r);
    double kept = 0;
    for (const double logp : row.logps) kept += std::exp(logp);
    tokens += static_cast<double>(row.ids.size()), mass += kept, kl -= std::log(std::min(kept, 1.0));
  }
  const double n = std::max<double>(1, static_cast<double>(store.rows()));
  if (printing.json) {
    Json json = format_json(store.format(), store.rows(), store.bytes());
    json["tokens_a_row"] = tokens / n, json["kept_mass"] = mass / n, json["truncation_kl"] = kl / n;
    if (options.row >= 0) {
      const TeacherRow row = store.row(options.row);
      json["row"] = {{"ids", row.ids}, {"logps", row.logps}};
      if (store.format().labels) json["row"]["label_logp"] = row.label_logp;
    }
    fmt::print("{}\n", json.dump(1));
    return exit_success;
  }
  print_format(store.format(), store.rows(), store.bytes());
  fmt::print(
      "tokens a row    {:.2f}\nkept mass       {:.4f} (mean); KL(kept || full) {:.4g} nats\nchecksums       all "
      "right\n",
      tokens / n, mass / n, kl / n);
  if (options.row < 0) return exit_success;
  const TeacherRow row = store.row(options.row);
  Table table{.title = fmt::format("Row {}", options.row),
              .columns = {number_column("token"), number_column("log-probability", fixed(4), "nats")},
              .rows = {}};
  for (size_t i = 0; i < row.ids.size(); ++i)
    table.rows.push_back({Cell(static_cast<int64_t>(row.ids[i])), Cell(row.logps[i])});
  fmt::print("{}", table_terminal(table, terminal_style(stdout)));
  if (store.format().labels) fmt::print("the text's own token: {:.4f}\n", row.label_logp);
  return exit_success;
}

int run(const std::vector<std::string>& arguments) {
  const std::vector<std::string> known{"record", "inspect"};
  const std::string action = arguments.empty() ? "" : arguments[0];
  const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (action == "record") return record(rest);
  if (action == "inspect") return inspect(rest);
  if (action.empty() || action == "--help" || action == "-h") {
    RecordOptions options;
    DataOptions data;
    InspectOptions looked;
    std::vector<std::string> files;
    PrintOptions printing;
    fmt::print("{}\n{}", describe_record(options, data, printing).help(),
               describe_inspect(looked, files, printing).help());
    return action.empty() ? exit_bad_input : exit_success;
  }
  fail("kullback teacher: \"{}\" is neither record nor inspect{}", action, suggestion(action, known));
}

/// Both actions in one, as completion and the manual know the command.
Command describe_both() {
  static RecordOptions recording;
  static InspectOptions looked;
  static DataOptions data;
  static PrintOptions printing;
  static std::vector<std::string> words;
  Command command("teacher", "keep the top of a teacher's rows in a file, and look into it");
  command.arguments("record|inspect", &words, "what to do; inspect takes the file too", 1)
      .options("Recording", record_options(), &recording)
      .options("Data", data_options(), &data)
      .options("Inspect", inspect_options(), &looked)
      .options("Output", print_options(), &printing)
      .example("kullback teacher record --teacher smollm2-135m-instruct --data rows.jsonl --output rows.teacher")
      .example("kullback teacher inspect rows.teacher --row 0");
  return command;
}

const RegisteredProgram program{
    {"teacher", "keep the top of a teacher's rows in a file, and look into it", describe_both, run}};

}  // namespace
}  // namespace kullback
