// The only place that knows CLI11: what the commands are called, what they take, their help and examples.
#include <CLI/CLI.hpp>
#include <limits>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/base/version.h"
#include "tools/cli/options.h"

namespace hir::cli {
namespace {

using base::Cat;

// CLI11 reads what does not fit 64 bits as the greatest number that does.
constexpr int64_t kSeedMax = std::numeric_limits<int64_t>::max() - 1;
constexpr int64_t kDaysMax = 36500;
constexpr const char* kExitCodes =
    "Exit codes: 0 done; 1 the program or a request is refused; 2 the command line, or a file; "
    "3 a device or a rank;\n4 no daemon at the address.";
constexpr const char* kInputsHelp =
    "Inputs are .npy files named like the program's inputs, row-major; bfloat16 as ml_dtypes saves "
    "it "
    "(V2), or as uint16.\nA number is an array without axes. Of an axis that is stored once a file "
    "may "
    "hold one element or all.";

void AddProgram(CLI::App& command, Options& options) {
  command.add_option("program", options.program, "a program in text form (docs/ir.md); -: standard input")
      ->type_name("PROGRAM.hir");
}

void AddAddress(CLI::App& command, Options& options) {
  command
      .add_option("--address", options.address,
                  "of the daemon: unix:/path or tcp:host:port, or those of all nodes of a cluster with commas "
                  "between; else $HOSTIR_ADDRESS, else hostird's default")
      ->type_name("ADDRESS");
  command
      .add_option("--ca", options.ca,
                  "with tcp: the authorities that sign the daemon's certificate (PEM); else $HOSTIR_CA")
      ->type_name("FILE");
  command.add_option("--cert", options.cert, "this client's certificate (PEM); else $HOSTIR_CERT")->type_name("FILE");
  command.add_option("--key", options.key, "the private key of it (PEM); else $HOSTIR_KEY")->type_name("FILE");
}

void AddConnection(CLI::App& command, Options& options) {
  AddAddress(command, options);
  command
      .add_option("--devices", options.devices, "start a daemon on these for this command: cpu:N, cuda:all, cuda:0,2")
      ->type_name("DEVICES");
  command.add_flag("--progress", options.progress,
                   "say what is under way also where stderr is no terminal, a line at a time");
}

void AddSizes(CLI::App& command, std::vector<std::string>& sizes, const char* what) {
  command.add_option("--size", sizes, what)->type_name("NAME=EXTENT")->allow_extra_args(false);
}

void AddInputs(CLI::App& command, Options& options, std::vector<std::string>& sizes) {
  command.add_option("--in", options.in, "read input %x from DIR/x.npy")->type_name("DIR");
  command
      .add_option("--random", options.random, "make inputs up instead: floats uniform in [-1.7, 1.7], integers 0 or 1")
      ->type_name("SEED")
      ->check(CLI::Range(int64_t{0}, kSeedMax));
  AddSizes(command, sizes, "with --random: the extent of a size; may be repeated");
  command.add_option("--timeout", options.timeout_s, "of one run, from its turn to its end; 0: the daemon's")
      ->type_name("SECONDS")
      ->check(CLI::Range(int64_t{0}, int64_t{1000000}));
}

// The parser, bound to where it puts what it reads.
struct Parser {
  CLI::App app{"hostir: runs tensor programs on the devices of a daemon, and shows what they do."};
  Options options;
  std::vector<std::string> sizes;
  bool version = false;

  Parser() {
    app.name("hostir");
    app.add_flag("--version", version, "print the version");
    app.footer(Cat("hostir COMMAND --help says more.\n", kExitCodes));
    AddRun();
    AddReplay();
    AddExplain();
    AddDiff();
    AddStatus();
    AddHealth();
    AddTop();
    AddDrain();
    AddDump();
    AddBench();
    AddCerts();
    AddCompletion();
    app.allow_extras();
    for (CLI::App* command : app.get_subcommands({})) command->allow_extras();
  }

  void AddRun() {
    CLI::App& command = *app.add_subcommand("run", "run a program: .npy files in, .npy files out");
    AddProgram(command, options);
    AddConnection(command, options);
    AddInputs(command, options, sizes);
    command.add_option("--out", options.out, "write output %y to DIR/y.npy; the folder is made")->type_name("DIR");
    command
        .add_option("--timeline", options.timeline,
                    "write when each rank's streams did what, as a trace that ui.perfetto.dev opens")
        ->type_name("FILE");
    command.footer(Cat(kInputsHelp,
                       "\n\n  hostir run mlp.hir --in inputs --out outputs\n"
                       "  hostir run mlp.hir --devices cpu:4 --random 1 --size i0=128\n\n",
                       kExitCodes));
  }

  void AddReplay() {
    CLI::App& command = *app.add_subcommand("replay", "carry out a recorded run again, and compare what comes of it");
    command.add_option("folder", options.program, "made by Python's client.run(..., record=FOLDER)")
        ->type_name("FOLDER");
    AddConnection(command, options);
    command.add_option("--out", options.out, "keep output %y in DIR/y.npy; the folder is made")->type_name("DIR");
    command
        .add_option("--tolerance", options.tolerance,
                    "how far outputs may differ, of the largest recorded element; beyond it the exit code is 1")
        ->type_name("SHARE")
        ->capture_default_str()
        ->check(CLI::Range(0.0, 1e9));
    command.footer(
        Cat("Without --address or --devices on as many CPU ranks as the recording had devices.\n\n"
            "  hostir replay bad_step\n  hostir replay bad_step --devices cuda:all --tolerance 0.001\n\n",
            kExitCodes));
  }

  void AddExplain() {
    CLI::App& command = *app.add_subcommand(
        "explain", "what running a program will do: segments, communications, bytes; no tensors needed");
    AddProgram(command, options);
    AddConnection(command, options);
    AddSizes(command, sizes, "the extent of a size, so that bytes become numbers; may be repeated");
    CLI::Option* svg =
        command.add_option("--svg", options.svg, "draw the plan: a lane for each stream")->type_name("FILE");
    command.add_flag("--json", options.json, "all of it, as proto/hostir/v1/service.proto names it")->excludes(svg);
    command.add_flag("--reply", options.reply, "PROGRAM.hir is a saved hostir.v1.ExplainReply: no daemon is asked");
    command.footer(
        Cat("  hostir explain mlp.hir --devices cpu:4\n"
            "  hostir explain mlp.hir --size i0=8192 --svg plan.svg\n\n",
            kExitCodes));
  }

  void AddDiff() {
    CLI::App& command = *app.add_subcommand("diff", "how the plans of two programs differ: segments, bytes, times");
    AddProgram(command, options);
    command.add_option("other", options.other, "the program that it is compared with")
        ->type_name("OTHER.hir")
        ->required();
    AddConnection(command, options);
    AddSizes(command, sizes, "the extent of a size, so that bytes become numbers; may be repeated");
    command.footer(
        Cat("Segments are the same where their ops make the same values. A program may say by which rule it is cut\n"
            "(docs/ir.md): what a rule brings is the difference of two files that differ in that line.\n\n"
            "  hostir diff before.hir after.hir --size i0=8192\n\n",
            kExitCodes));
  }

  void AddStatus() {
    CLI::App& command = *app.add_subcommand("status", "devices, processes, memory, queues and limits of a daemon");
    AddAddress(command, options);
    command.add_flag("--json", options.json, "all of it, as proto/hostir/v1/service.proto names it");
    command.footer(
        Cat("  hostir status\n  hostir status --address unix:/run/hostir-alice/socket --json\n\n", kExitCodes));
  }

  void AddHealth() {
    CLI::App& command = *app.add_subcommand("health", "whether a daemon, or a node of a cluster, serves: for probes");
    AddAddress(command, options);
    command.footer(
        Cat("Asks grpc.health.v1; of a node at its --node-address, with the certificate of a node.\n\n"
            "  hostir health\n"
            "  hostir health --address tcp:10.0.0.2:7001 --ca ca.pem --cert node.pem --key node.key\n\n",
            kExitCodes));
  }

  void AddTop() {
    CLI::App& command =
        *app.add_subcommand("top", "ranks, memory, requests, queues and plans of a daemon, again and again");
    AddAddress(command, options);
    command.add_flag("--once", options.once, "print one table and exit");
    command.add_option("--interval", options.interval_s, "between two tables")
        ->type_name("SECONDS")
        ->capture_default_str()
        ->check(CLI::Range(0.1, 3600.0));
    command.footer(Cat("q ends it.\n\n  hostir top\n  hostir top --once\n\n", kExitCodes));
  }

  void AddDrain() {
    CLI::App& drain = *app.add_subcommand(
        "drain", "take a node out of a cluster's mesh, when what is under way is over: to stop its daemon, say");
    AddAddress(drain, options);
    drain.add_option("node", options.node, "its number, or its address")->required();
    drain.footer(
        Cat("Runs that need its devices are refused, the others go on. What it keeps of tensors it keeps as\n"
            "long as its daemon runs.\n\n  hostir drain 1\n  hostir drain tcp:10.0.0.2:7001\n\n",
            kExitCodes));
    CLI::App& undrain = *app.add_subcommand("undrain", "have a drained node back");
    AddAddress(undrain, options);
    undrain.add_option("node", options.node, "its number, or its address")->required();
    undrain.footer(Cat("  hostir undrain 1\n\n", kExitCodes));
  }

  void AddDump() {
    CLI::App& command = *app.add_subcommand(
        "dump", "the latest that a daemon did: runs, requests that failed, plans, failures of its mesh");
    AddAddress(command, options);
    command.add_flag("--json", options.json, "all of it, as proto/hostir/v1/service.proto names it");
    command.footer(Cat("  hostir dump | tail\n  hostir dump --json > events.json\n\n", kExitCodes));
  }

  void AddBench() {
    CLI::App& command = *app.add_subcommand("bench", "run a program again and again: quartiles of its times");
    AddProgram(command, options);
    AddConnection(command, options);
    AddInputs(command, options, sizes);
    command.add_option("--repeat", options.repeat, "how many runs are timed")
        ->type_name("N")
        ->capture_default_str()
        ->check(CLI::Range(int64_t{1}, kRepeatMax));
    command.add_option("--warmup", options.warmup, "how many runs come before them")
        ->type_name("N")
        ->capture_default_str()
        ->check(CLI::Range(int64_t{0}, kRepeatMax));
    command.add_flag("--json", options.json, "print what was measured as JSON, every sample too");
    command.footer(
        Cat("  hostir bench mlp.hir --repeat 1000 --random 1 --size i0=128\n"
            "  hostir bench mlp.hir --in inputs --json\n\n",
            kExitCodes));
  }

  void AddCerts() {
    CLI::App& command =
        *app.add_subcommand("certs", "make an authority and the certificates that it signs, for trying TLS out");
    command.add_option("into", options.folder, "where the files go, readable by you alone; none is overwritten")
        ->type_name("FOLDER");
    command.add_option("--server", options.servers, "a name or an IP address of the daemon's machine; may be repeated")
        ->type_name("NAME")
        ->allow_extra_args(false);
    command.add_option("--client", options.clients, "a client's name; may be repeated")
        ->type_name("NAME")
        ->allow_extra_args(false);
    command
        .add_option("--node", options.nodes,
                    "a name or an IP address of a node of a cluster; may be repeated: one certificate is for all")
        ->type_name("NAME")
        ->allow_extra_args(false);
    command.add_option("--days", options.days, "that they are valid")
        ->type_name("N")
        ->capture_default_str()
        ->check(CLI::Range(int64_t{1}, kDaysMax));
    command.footer(
        "  hostir certs certs\n"
        "  hostir certs certs --server gpu1.example.org --server 10.0.0.7 --client alice --client bob --days 365");
  }

  void AddCompletion() {
    CLI::App& command = *app.add_subcommand("completion", "print what a shell completes hostir's words by");
    command.add_option("shell", options.shell, "the shell")
        ->type_name("SHELL")
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    command.footer(
        "  source <(hostir completion bash)\n"
        "  hostir completion zsh > ~/.zsh/completions/_hostir\n"
        "  hostir completion fish > ~/.config/fish/completions/hostir.fish");
  }
};

Status Wrong(std::string_view command, std::string_view what) {
  return InvalidArgument(Cat(what, " (hostir ", command, command.empty() ? "" : " ", "--help)"));
}

// A word that the parser did not take.
Status Unknown(const CLI::App& app, const CLI::App* command, const std::string& word) {
  std::vector<std::string_view> names;
  const bool is_option = word.starts_with("-") && word != "-";
  const std::string name = word.substr(0, word.find('='));
  const auto add_options = [&](const CLI::App& of) {
    for (const CLI::Option* option : of.get_options()) {
      for (const std::string& known : option->get_lnames()) names.push_back(known);
    }
  };
  std::string_view near;
  if (is_option) {
    add_options(command != nullptr ? *command : app);
    if (name.starts_with("--")) near = base::Nearest(name.substr(2), names);
  } else if (command == nullptr) {
    for (const CLI::App* known : app.get_subcommands({})) names.push_back(known->get_name());
    near = base::Nearest(name, names);
  }
  const std::string_view kind = is_option            ? "no such option"
                                : command == nullptr ? "no such command"
                                                     : "one argument too many";
  return Wrong(command == nullptr ? "" : command->get_name(),
               Cat(name, ": ", kind, near.empty() ? "" : Cat("; did you mean ", is_option ? "--" : "", near, "?")));
}

Status ReadSizes(const std::vector<std::string>& texts, Options& options) {
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const std::optional<int64_t> extent = equals == std::string::npos || equals == 0
                                              ? std::nullopt
                                              : base::ParseInt(std::string_view(text).substr(equals + 1));
    if (!extent || *extent < 0)
      return InvalidArgument(Cat("--size ", text, ": want NAME=EXTENT with an extent of 0 or more"));
    if (!options.sizes.emplace(text.substr(0, equals), *extent).second)
      return InvalidArgument(
          Cat("--size ", text, ": ", text.substr(0, equals), " has an extent already; one is enough"));
  }
  return {};
}

// The words in the braces of "SHELL:{bash,zsh,fish}".
std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

// What options say together.
Status Check(const Options& options, const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_name() == "program" && options.program.empty())
      return InvalidArgument("which program? PROGRAM.hir is missing");
    if (option->get_name() == "folder" && options.program.empty())
      return InvalidArgument("which recording? FOLDER is missing");
    if (option->get_name() == "into" && options.folder.empty())
      return InvalidArgument("which folder? FOLDER is missing");
    if (option->get_name() == "shell" && options.shell.empty())
      return InvalidArgument("for which shell? bash, zsh or fish");
  }
  if (!options.address.empty() && !options.devices.empty())
    return InvalidArgument("--address and --devices: a daemon that runs, or one that is started, not both");
  if (options.random && !options.in.empty())
    return InvalidArgument("--in and --random: inputs are read or made up, not both");
  if (!options.sizes.empty() && options.command != "explain" && options.command != "diff" && !options.random)
    return InvalidArgument("--size: the sizes of inputs that are read are theirs; it goes with --random");
  return {};
}

}  // namespace

Result<Parsed> ParseCommandLine(std::span<const char* const> arguments) {
  Parser parser;
  CLI::App& app = parser.app;
  std::vector<std::string> words(arguments.rbegin(),
                                 arguments.rend());  // CLI11 takes them from behind.
  std::string error;
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    return Parsed{{}, app.help()};  // Of the command, if there is one.
  } catch (const CLI::ParseError& failure) {
    error = failure.what();
  }
  const std::vector<CLI::App*> given = app.get_subcommands();
  const CLI::App* command = given.empty() ? nullptr : given[0];
  if (!error.empty()) return Wrong(command == nullptr ? "" : command->get_name(), error);
  for (const std::string& word : app.remaining(/*recurse=*/true)) {
    if (word != "--") return Unknown(app, command, word);  // Behind it there are no options.
  }
  if (parser.version) return Parsed{{}, Cat("hostir ", kVersion, "\n")};
  if (command == nullptr)
    return Wrong("",
                 "which command? run, replay, explain, diff, status, health, top, drain, undrain, dump, bench, certs, "
                 "completion");
  if (given.size() > 1)
    return Wrong("", Cat("one command, not both ", command->get_name(), " and ", given[1]->get_name()));
  parser.options.command = command->get_name();
  Status status = ReadSizes(parser.sizes, parser.options);
  if (status.ok()) status = Check(parser.options, *command);
  if (!status.ok()) return Wrong(command->get_name(), status.message());
  return Parsed{std::move(parser.options), std::nullopt};
}

std::vector<CommandWords> DescribeCommands() {
  const Parser parser;
  std::vector<CommandWords> commands;
  for (const CLI::App* command : parser.app.get_subcommands({})) {
    CommandWords& words = commands.emplace_back();
    words.name = command->get_name();
    words.what = command->get_description();
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) {
        words.takes_program = option->get_name() == "program";
        words.choices = ChoicesOf(*option);
        continue;
      }
      const bool has_value = option->get_items_expected_max() > 0;
      const std::string type = option->get_type_name();  // "SHELL:{bash,zsh}", "N:INT in [0 - 9]"
      words.options.push_back({.name = Cat("--", option->get_lnames().front()),
                               .value = has_value ? type.substr(0, type.find(':')) : "",
                               .choices = ChoicesOf(*option),
                               .repeats = option->get_items_expected_max() > 1,
                               .what = option->get_description()});
    }
  }
  return commands;
}

}  // namespace hir::cli
