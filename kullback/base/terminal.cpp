#include "kullback/base/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace kullback {

bool is_terminal(std::FILE* stream) {
  const int descriptor = fileno(stream);
  return descriptor >= 0 && isatty(descriptor) != 0;
}

bool shows_colours(std::FILE* stream) {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool wanted = no_colour == nullptr || *no_colour == '\0';
  return is_terminal(stream) && wanted && terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace kullback
