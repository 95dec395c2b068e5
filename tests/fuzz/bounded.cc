// A fuzz target as a test: goal: it finds nothing in its seeds and in so many seeded mutations of them. Method: the
// arguments are RUNS [SEED], or a file with one input; each run mutates a seed, or one of the latest mutations, one to
// four times. What was run last is written to the file NAME.input when the process ends before its time.
#include <google/protobuf/stubs/logging.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/target.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace {

const std::string* running = nullptr;
std::string reproducer;

// Unsafe in a signal handler, which matters little: the process is at its end.
void Keep() {
  if (running == nullptr) return;
  std::ofstream(reproducer, std::ios::binary).write(running->data(), static_cast<std::streamsize>(running->size()));
  std::fprintf(stderr, "the input is in %s\n", reproducer.c_str());
}

void KeepAtTheEnd() {
#ifdef __SANITIZE_ADDRESS__  // Its own handlers of the others say where it was.
  __sanitizer_set_death_callback(&Keep);
  constexpr std::array kSignals = {SIGABRT};
#else
  constexpr std::array kSignals = {SIGABRT, SIGSEGV, SIGFPE, SIGBUS};
#endif
  for (const int signal : kSignals) {
    std::signal(signal, [](int number) {
      Keep();
      std::signal(number, SIG_DFL);
      std::raise(number);
    });
  }
}

void Run(const std::string& input) {
  running = &input;
  hir::fuzz::RunOne(input);
  running = nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (std::ifstream file(argc > 1 ? argv[1] : "", std::ios::binary); file) {
    Run({std::istreambuf_iterator<char>(file), {}});
    return 0;
  }
  const long runs = argc > 1 ? std::atol(argv[1]) : 1000;
  const unsigned long seed = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  reproducer = std::string(argv[0]) + ".input";
  google::protobuf::SetLogHandler(nullptr);  // It would report each message that is none.
  KeepAtTheEnd();
  const std::vector<std::string> seeds = hir::fuzz::Seeds();
  if (seeds.empty()) hir::fuzz::Found("no seeds: is the current folder the repository?");
  for (const std::string& input : seeds) Run(input);
  std::vector<std::string> latest = seeds;
  hir::base::Prng prng(seed);
  for (long i = 0; i < runs; ++i) {
    std::string input = latest[static_cast<size_t>(prng.Below(std::ssize(latest)))];
    for (int64_t times = prng.Between(1, 4); times > 0; --times) input = hir::fuzz::Mutated(prng, input);
    if (input.size() > (1 << 16)) continue;
    Run(input);
    // Half of what there is to start from stays the seeds.
    const size_t at = static_cast<size_t>(prng.Below(std::ssize(seeds)));
    if (latest.size() < 2 * seeds.size()) {
      latest.push_back(std::move(input));
    } else {
      latest[seeds.size() + at] = std::move(input);
    }
  }
  std::printf("seed %lu: %zu seeds and %ld mutations\n", seed, seeds.size(), runs);
  return 0;
}
