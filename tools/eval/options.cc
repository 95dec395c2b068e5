#include "tools/eval/options.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/text.h"

namespace hir::eval {

namespace {

using base::Cat;

// One row: the option's name, what its value is called (empty: it has none), how it is set, and its help.
struct Row {
  std::string_view name;
  std::string_view value;
  Status (*set)(Options&, std::string_view);
  std::string_view help;
};

Status SetInt(int64_t& out, std::string_view text, int64_t min, int64_t max) {
  const std::optional<int64_t> value = base::ParseInt(text);
  if (!value || *value < min || *value > max) {
    return InvalidArgument(Cat("wants a number from ", min, " to ", max, ", got ", text));
  }
  out = *value;
  return {};
}

Status SetSize(Options& options, std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos) return InvalidArgument(Cat("wants NAME=EXTENT, got ", text));
  int64_t extent = 0;
  HIR_TRY(SetInt(extent, text.substr(equals + 1), 0, int64_t{1} << 40));
  options.sizes[std::string(text.substr(0, equals))] = extent;
  return {};
}

Status SetOverlaps(Options& options, std::string_view text) {
  options.overlaps.clear();
  for (size_t end = 0; end != std::string_view::npos;) {
    end = text.find(',');
    const std::string_view word = text.substr(0, end);
    if (end != std::string_view::npos) text.remove_prefix(end + 1);
    const auto* const found = std::ranges::find(host::kOverlapChoices, word, &host::OverlapChoiceName);
    if (found == std::end(host::kOverlapChoices))
      return InvalidArgument(Cat("wants chosen, always or never, got ", word));
    options.overlaps.push_back(*found);
  }
  return {};
}

constexpr Row kRows[] = {
    {"--in", "DIR",
     [](Options& o, std::string_view v) {
       o.in = v;
       return Status();
     },
     "read input %x from DIR/x.npy: whole arrays, of which each rank takes its part"},
    {"--out", "DIR",
     [](Options& o, std::string_view v) {
       o.out = v;
       return Status();
     },
     "write output %y to DIR/y.npy: whole arrays. DIR is one that all ranks see"},
    {"--random", "SEED", [](Options& o, std::string_view v) { return SetInt(o.random.emplace(), v, 0, INT64_MAX); },
     "make inputs up instead: floats uniform in [-1.7, 1.7], integers 0 or 1"},
    {"--size", "NAME=EXTENT", &SetSize, "with --random: the extent of a size (i0=128); may be repeated"},
    {"--device", "KIND",
     [](Options& o, std::string_view v) {
       o.device = v;
       return v == "cpu" || v == "cuda" ? Status() : InvalidArgument(Cat("wants cpu or cuda, got ", v));
     },
     "cpu (communication by UCX) or cuda (by NCCL; one GPU for each rank of a machine)"},
    {"--comm", "BACKEND",
     [](Options& o, std::string_view v) {
       o.comm = v;
       return v == "ucx" || v == "mpi" || v == "nccl" ? Status()
                                                      : InvalidArgument(Cat("wants ucx, mpi or nccl, got ", v));
     },
     "how ranks communicate: ucx (the default) or mpi on cpu, nccl on cuda"},
    {"--nvlink-multicast", "",
     [](Options& o, std::string_view) {
       o.nvlink_multicast = true;
       return Status();
     },
     "let NCCL reduce in the NVLink switch, where every GPU of it is free (cuda)"},
    {"--no-peer-memory", "",
     [](Options& o, std::string_view) {
       o.peer_memory = false;
       return Status();
     },
     "leave all communications to NCCL; without it GPUs write into each other's memory where they can (cuda)"},
    {"--overlap", "WHICH,...", &SetOverlaps,
     "products run in parts beside their communications: where it pays (chosen, the default), always, or never; of "
     "several each is a run of its own"},
    {"--without", "PASS,...",
     [](Options& o, std::string_view v) {
       o.without = v;
       return Status();
     },
     "passes that planning leaves out, as with hostir-opt --without, to see what they bring"},
    {"--threads", "N", [](Options& o, std::string_view v) { return SetInt(o.threads, v, 1, 1024); },
     "threads of a CPU rank (1)"},
    {"--repeat", "N", [](Options& o, std::string_view v) { return SetInt(o.repeat, v, 0, kSamplesMax); },
     "time N samples after the first run, and print their median and quartiles"},
    {"--batch", "N", [](Options& o, std::string_view v) { return SetInt(o.batch, v, 1, 4096); },
     "runs in a sample, back to back (1); the times printed are for one run"},
    {"--warmup", "N", [](Options& o, std::string_view v) { return SetInt(o.warmup, v, 0, 4096); },
     "runs before the first sample (3); with --graph the first of them is captured"},
    {"--cold-l2", "",
     [](Options& o, std::string_view) {
       o.cold_l2 = true;
       return Status();
     },
     "write 256 MiB before each sample, so that no data is in a cache"},
    {"--graph", "",
     [](Options& o, std::string_view) {
       o.graph = true;
       return Status();
     },
     "runs that repeat are replayed as a graph (cuda), as the service does"},
    {"--warm-compiler", "",
     [](Options& o, std::string_view) {
       o.warm_compiler = true;
       return Status();
     },
     "load the compiler before anything is compiled, as the service does when it starts, and "
     "report "
     "its time apart (cuda)"},
    {"--compile-again", "",
     [](Options& o, std::string_view) {
       o.compile_again = true;
       return Status();
     },
     "compile once more by a compiler that knows what is on disk alone, and report its time"},
    {"--tf32", "",
     [](Options& o, std::string_view) {
       o.tf32 = true;
       return Status();
     },
     "products of f32 may round operands to TF32, 10 bits of mantissa, as {precision=tf32} says of "
     "one (cuda)"},
    {"--json", "FILE",
     [](Options& o, std::string_view v) {
       o.json = v;
       return Status();
     },
     "write what was measured to FILE"},
    {"--timeline", "FILE",
     [](Options& o, std::string_view v) {
       o.timeline = v;
       return Status();
     },
     "after all else run once more, no graph replayed, and write when each rank's streams did what, as a trace that "
     "ui.perfetto.dev opens"},
    {"--rates", "FILE",
     [](Options& o, std::string_view v) {
       o.rates = v;
       return Status();
     },
     "say how long a run should take, by what --calibrate wrote to FILE"},
    {"--calibrate", "FILE",
     [](Options& o, std::string_view v) {
       o.calibrate = v;
       return Status();
     },
     "instead of a program: measure kernels, products and communications of these ranks, and write their times to "
     "FILE"},
    {"--explain", "",
     [](Options& o, std::string_view) {
       o.explain = true;
       return Status();
     },
     "print the plan: segments, communications, guards and the host program"},
    {"--timeout", "SECONDS", [](Options& o, std::string_view v) { return SetInt(o.timeout_s, v, 1, 86400); },
     "how long ranks wait for each other, for a run, and for a communication (120)"},
    {"--help", "",
     [](Options& o, std::string_view) {
       o.help = true;
       return Status();
     },
     "print this"},
};

const Row* FindRow(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

Status Unknown(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  const std::string_view nearest = base::Nearest(name, names);
  return InvalidArgument(
      Cat("no option ", name, nearest.empty() ? "" : Cat("; did you mean ", nearest, "?"), " (--help lists them)"));
}

Status Check(const Options& options) {
  if (options.help) return {};
  if (!options.calibrate.empty() &&
      !(options.programs.empty() && options.rates.empty() && options.timeline.empty() && options.in.empty() &&
        options.out.empty() && options.sizes.empty() && !options.random && !options.tf32 && !options.cold_l2 &&
        !options.graph && options.repeat == 0 && options.batch == 1))
    return InvalidArgument(
        "--calibrate times programs of its own, in its own way: only --json, --device, --comm, "
        "--threads, --timeout and what communications go by go with it");
  if (options.programs.empty() && options.calibrate.empty())
    return InvalidArgument("no program: hostir-eval PROGRAM.hir --in DIR --out DIR");
  if (options.random && !options.in.empty())
    return InvalidArgument("--in and --random: inputs are read or made up, not both");
  if (!options.random && !options.sizes.empty())
    return InvalidArgument("--size: the sizes of inputs that are read are theirs; it goes with --random");
  if (!options.comm.empty() && (options.comm == "nccl") != (options.device == "cuda"))
    return InvalidArgument(Cat("--comm ", options.comm, " does not go with --device ", options.device,
                               ": cpu has ucx and mpi, cuda has nccl"));
  if (options.programs.size() * options.overlaps.size() > 1 && !(options.out.empty() && options.timeline.empty()))
    return InvalidArgument("--out and --timeline are for one program and one --overlap");
  if (options.repeat == 0 && (options.cold_l2 || options.graph || options.batch != 1))
    return InvalidArgument("--cold-l2, --graph and --batch go with --repeat N");
  return {};
}

}  // namespace

Result<Options> ParseOptions(std::span<const char* const> arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (!argument.starts_with("-")) {
      options.programs.emplace_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    const Row* row = FindRow(name == "-h" ? "--help" : name);
    if (row == nullptr) return Unknown(name);
    std::string_view value;
    if (row->value.empty()) {
      if (equals != std::string_view::npos) return InvalidArgument(Cat(name, " takes no value"));
    } else if (equals != std::string_view::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return InvalidArgument(Cat(name, " wants ", row->value));
    }
    HIR_TRY(row->set(options, value).WithContext(name));
  }
  HIR_TRY(Check(options));
  if (!options.calibrate.empty()) {
    options.random = 1;
    options.overlaps = {host::OverlapChoice::kNever};
    options.repeat = 9;
    options.batch = 10;
  }
  return options;
}

std::string HelpText() {
  std::string out =
      "hostir-eval PROGRAM.hir [options]\n"
      "hostir-eval A.hir B.hir --overlap chosen,never --random 1 --repeat 9 --json times.json\n"
      "mpirun -n 4 hostir-eval PROGRAM.hir --in DIR --out DIR\n"
      "mpirun -n 2 hostir-eval --calibrate rates.txt --device cuda\n\n"
      "Runs a program in text form (docs/ir.md) without a daemon: on one rank, or on as many as "
      "mpirun starts. Several programs run one after the other; samples of one program's plans take turns.\n\n";
  constexpr size_t kColumn = 22;
  for (const Row& row : kRows) {
    std::string line = Cat("  ", row.name, row.value.empty() ? "" : " ", row.value);
    if (line.size() < kColumn) line.append(kColumn - line.size(), ' ');
    base::Append(out, line, "  ", row.help, "\n");
  }
  out +=
      "\nArrays are .npy files, row-major, of the program's types; bfloat16 as ml_dtypes saves it "
      "(V2), or as uint16. A\n"
      "host scalar is an array without axes. Of an axis that is stored once a file may hold one "
      "element or all.\n\n"
      "Exit codes: 0 done; 1 the program or its inputs are refused; 2 the command line, or a file "
      "that is not there;\n"
      "3 a device, a communication or a rank failed.\n";
  return out;
}

}  // namespace hir::eval
