// The command line: what is read, and what is said when it is wrong.
#include "tools/eval/options.h"

#include <gtest/gtest.h>

#include <vector>

namespace hir::eval {
namespace {

std::string ErrorOf(std::vector<const char*> arguments) {
  return std::string(ParseOptions(arguments).status().message());
}

TEST(Options, ReadsBothSpellingsOfAValue) {
  const char* const arguments[] = {"p.hir", "--in=a", "--out", "b", "--repeat", "50", "--cold-l2", "--device=cuda"};
  const auto options = ParseOptions(arguments);
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->programs, std::vector<std::string>{"p.hir"});
  EXPECT_EQ(options->overlaps, std::vector{host::OverlapChoice::kChosen});
  EXPECT_EQ(options->in, "a");
  EXPECT_EQ(options->out, "b");
  EXPECT_EQ(options->repeat, 50);
  EXPECT_TRUE(options->cold_l2);
  EXPECT_EQ(options->device, "cuda");
}

TEST(Options, ReadsSeveralProgramsAndPlans) {
  const char* const arguments[] = {"p.hir", "--random=1", "--overlap", "never,chosen", "q.hir"};
  const auto options = ParseOptions(arguments);
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->programs, (std::vector<std::string>{"p.hir", "q.hir"}));
  EXPECT_EQ(options->overlaps, (std::vector{host::OverlapChoice::kNever, host::OverlapChoice::kChosen}));
}

TEST(Options, SaysWhatIsWrong) {
  EXPECT_EQ(ErrorOf({}), "no program: hostir-eval PROGRAM.hir --in DIR --out DIR");
  EXPECT_EQ(ErrorOf({"p.hir", "--repaet", "5"}), "no option --repaet; did you mean --repeat? (--help lists them)");
  EXPECT_EQ(ErrorOf({"p.hir", "--repeat", "many"}), "--repeat: wants a number from 0 to 4096, got many");
  EXPECT_EQ(ErrorOf({"p.hir", "--repeat"}), "--repeat wants N");
  EXPECT_EQ(ErrorOf({"p.hir", "--cold-l2=yes", "--repeat=1"}), "--cold-l2 takes no value");
  EXPECT_EQ(ErrorOf({"p.hir", "--cold-l2"}), "--cold-l2, --graph and --batch go with --repeat N");
  EXPECT_EQ(ErrorOf({"p.hir", "q.hir", "--out", "d"}), "--out and --timeline are for one program and one --overlap");
  EXPECT_EQ(ErrorOf({"p.hir", "--overlap", "never,"}), "--overlap: wants chosen, always or never, got ");
  EXPECT_EQ(ErrorOf({"p.hir", "--device", "tpu"}), "--device: wants cpu or cuda, got tpu");
  EXPECT_EQ(ErrorOf({"p.hir", "--comm", "gloo"}), "--comm: wants ucx, mpi or nccl, got gloo");
  EXPECT_EQ(ErrorOf({"p.hir", "--comm", "mpi", "--device", "cuda"}),
            "--comm mpi does not go with --device cuda: cpu has ucx and mpi, cuda has nccl");
  EXPECT_EQ(ErrorOf({"p.hir", "--random", "1", "--in", "d"}),
            "--in and --random: inputs are read or made up, not both");
  EXPECT_EQ(ErrorOf({"p.hir", "--random", "1", "--size", "i0"}), "--size: wants NAME=EXTENT, got i0");
}

TEST(Options, HelpNamesEveryOption) {
  for (const char* name :
       {"--in DIR", "--out DIR", "--random SEED", "--size NAME=EXTENT", "--device KIND", "--threads N", "--repeat N",
        "--batch N", "--warmup N", "--cold-l2", "--graph", "--warm-compiler", "--compile-again", "--json FILE",
        "--explain", "--timeout SECONDS", "Exit codes"}) {
    EXPECT_NE(HelpText().find(name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace hir::eval
