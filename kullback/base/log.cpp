#include "kullback/base/log.h"

#include <memory>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "kullback/base/terminal.h"

namespace kullback {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    const auto colours = shows_colours(stderr) ? spdlog::color_mode::always : spdlog::color_mode::never;
    auto made =
        std::make_shared<spdlog::logger>("kullback", std::make_shared<spdlog::sinks::stderr_color_sink_st>(colours));
    made->set_pattern("%^%v%$");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_verbosity(Verbosity verbosity) {
  logger().set_level(verbosity == Verbosity::quiet     ? spdlog::level::err
                     : verbosity == Verbosity::verbose ? spdlog::level::debug
                                                       : spdlog::level::info);
}

Verbosity verbosity() {
  const auto level = logger().level();
  return level == spdlog::level::err     ? Verbosity::quiet
         : level == spdlog::level::debug ? Verbosity::verbose
                                         : Verbosity::normal;
}

void note(const std::string& text) { logger().info(text); }
void warn(const std::string& text) { logger().warn("warning: {}", text); }
void detail_note(const std::string& text) { logger().debug(text); }

}  // namespace kullback
