#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kullback/base/json.h"
#include "kullback/base/registry.h"
#include "kullback/report/number.h"

namespace kullback {

bool method_has_option(const std::string& method, const std::string& option);

/// A held-out figure after training, from a run's evaluation.json; no number where it is not there.
Interval held_out_figure(const Json& evaluation, const std::string& figure);

/// A held-out figure of the table.
struct ComparedFigure {
  std::string figure, title, unit = {};
  NumberFormat format = significant(3);
};

/// Several methods on the same rows in the same order, which end in one table: what `--method a,b,c` of a command that trains
/// means.
struct Comparison {
  std::string command;
  Family family = Family::alignment;
  std::string otherwise;  ///< the method where --method is not given
  std::vector<ComparedFigure> figures = {};
  std::string bought = {}, price = {};  ///< the plot's figures: what a method bought, and how far it went for it
  /// Runs one method with these arguments of the command; gives back its exit status.
  std::function<int(const std::vector<std::string>& arguments)> run = {};
  /// Reads the arguments of one method without running it, so that what is wrong with the last method is known before the
  /// first one is trained.
  std::function<void(const std::vector<std::string>& arguments)> check = {};
  std::vector<std::string> methods = {};
  std::vector<std::string> arguments = {};  ///< as they were given
  std::string output = {};                  ///< a run folder a method is written in it, and the table
  bool json = false;                        ///< print the table as JSON
};

/// Runs the one method that --method names; or where it names several, each in a folder of its own within --output, and then
/// shows the table and writes it as comparison.json and comparison.html. `--resume` goes on with either.
int run_or_compare(Comparison comparison, const std::vector<std::string>& arguments);

/// The arguments of one method of several: its own --method and --output, and without the options that other methods of the
/// comparison have and it has not.
std::vector<std::string> arguments_of(const Comparison& comparison, const std::string& method);

}  // namespace kullback
