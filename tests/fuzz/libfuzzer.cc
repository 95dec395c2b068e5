// A fuzz target as a libFuzzer program. --write-seeds=FOLDER, alone, writes the seeds there instead.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "csrc/base/text.h"
#include "tests/fuzz/target.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  google::protobuf::SetLogHandler(nullptr);  // It would report each message that is none.
  constexpr std::string_view kFlag = "--write-seeds=";
  const std::string_view first = *argc == 2 ? (*argv)[1] : "";
  if (!first.starts_with(kFlag)) return 0;
  const std::filesystem::path folder(first.substr(kFlag.size()));
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const std::string& seed : hir::fuzz::Seeds()) {
    std::ofstream file(folder / hir::base::Cat("seed-", number++), std::ios::binary);
    if (!file.write(seed.data(), static_cast<std::streamsize>(seed.size()))) std::exit(1);
  }
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hir::fuzz::RunOne({reinterpret_cast<const char*>(data), size});
  return 0;
}

// Structure most of the time; bytes, where libFuzzer knows what the code compares them with, at others.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  hir::base::Prng prng(seed);
  if (prng.OneIn(5)) return LLVMFuzzerMutate(data, size, max_size);
  std::string input(reinterpret_cast<const char*>(data), size);
  do {
    std::string mutated = hir::fuzz::Mutated(prng, input);
    if (mutated.size() > max_size) break;
    input = std::move(mutated);
  } while (prng.OneIn(2));
  if (input.size() > max_size) input.resize(max_size);
  std::memcpy(data, input.data(), input.size());
  return input.size();
}
