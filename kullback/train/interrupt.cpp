#include "kullback/train/interrupt.h"

#include <csignal>

namespace kullback {
namespace {

volatile std::sig_atomic_t asked = 0;

void ask(int signal) {
  asked = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  asked = 0;
  std::signal(SIGINT, ask);
  std::signal(SIGTERM, ask);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool interrupted() { return asked != 0; }

}  // namespace kullback
