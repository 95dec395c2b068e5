// Every rank publishes and reads what the others published, values of all sizes that there may be. Run by mpirun; the
// communicators and hostir-eval, which use it, are tested by their own tests.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <string>

#include "csrc/base/text.h"
#include "multidevice/rendezvous/mpi/mpi.h"

namespace hir::comm {
namespace {

using base::Cat;

constexpr base::Nanos kTimeout = std::chrono::seconds(30);

MpiRendezvous* ranks = nullptr;  // MPI starts once in a process.

std::string ValueOf(int64_t rank, size_t bytes) {
  std::string value(bytes, static_cast<char>('a' + rank));
  if (bytes > 1) value[1] = '\0';
  return value;
}

// All ranks are here: what was published before can be taken for known.
void Meet(std::string_view name) {
  ASSERT_TRUE(ranks->Publish(Cat(name, "/", ranks->rank()), "here").ok());
  for (int64_t peer = 0; peer < ranks->size(); ++peer) {
    ASSERT_TRUE(ranks->Get(Cat(name, "/", peer), kTimeout).ok()) << peer;
  }
}

TEST(MpiRendezvous, RanksReadWhatAllPublished) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{5000}, kRendezvousBytesMax}) {
    const std::string prefix = Cat("value/", bytes, "/");
    ASSERT_TRUE(ranks->Publish(Cat(prefix, ranks->rank()), ValueOf(ranks->rank(), bytes)).ok());
    for (int64_t peer = 0; peer < ranks->size(); ++peer) {
      const Result<std::string> got = ranks->Get(Cat(prefix, peer), kTimeout);
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      EXPECT_EQ(*got, ValueOf(peer, bytes));
    }
  }
}

TEST(MpiRendezvous, KnowsItsPlace) {
  EXPECT_GE(ranks->rank(), 0);
  EXPECT_LT(ranks->rank(), ranks->size());
  EXPECT_EQ(ranks->node_rank(), ranks->rank());  // The tests run on one machine.
}

TEST(MpiRendezvous, RefusesWhatItCannotKeep) {
  EXPECT_EQ(ranks->Get("nobody's", std::chrono::milliseconds(1)).status().ToString(),
            "DEADLINE_EXCEEDED: rendezvous: nobody's was not published in 0.001 s");
  if (ranks->rank() == 0) {
    EXPECT_TRUE(ranks->Publish("once", "v").ok());
    EXPECT_TRUE(ranks->Publish("once", "v").ok());
  }
  ASSERT_TRUE(ranks->Get("once", kTimeout).ok());
  EXPECT_EQ(ranks->Publish("once", "w").ToString(),
            "ALREADY_EXISTS: rendezvous: once holds other bytes already");
  EXPECT_EQ(ranks->Publish("big", std::string(kRendezvousBytesMax + 1, 'x')).code(),
            Code::kResourceExhausted);
}

// A rank that waits must not take a processor from those that work.
TEST(MpiRendezvous, WaitsWithoutSpinning) {
  Meet("before waiting");
  const std::clock_t begin = std::clock();
  EXPECT_EQ(ranks->Get("never", std::chrono::milliseconds(500)).status().code(),
            Code::kDeadlineExceeded);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 0.25);  // Of the process: its thread too.
}

}  // namespace
}  // namespace hir::comm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  auto started = hir::comm::MpiRendezvous::Start();
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", started.status().ToString().c_str());
    return 1;
  }
  hir::comm::ranks = started->get();
  return RUN_ALL_TESTS();  // MPI ends with `started`.
}
