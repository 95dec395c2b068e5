// Every rank publishes and reads what the others published, values of all sizes that there may be. Run by mpirun; the
// communicators and hostir-eval, which use it, are tested by their own tests.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <string>

#include "csrc/base/text.h"
#include "tests/multidevice/rendezvous/mpi/mpi_ranks.h"

namespace hir::comm {
namespace {

using base::Cat;

constexpr base::Nanos kTimeout = std::chrono::seconds(30);

std::string ValueOf(int64_t rank, size_t bytes) {
  std::string value(bytes, static_cast<char>('a' + rank));
  if (bytes > 1) value[1] = '\0';
  return value;
}

// All ranks are here: what was published before can be taken for known.
void Meet(std::string_view name) {
  ASSERT_TRUE(Ranks().Publish(Cat(name, "/", Ranks().rank()), "here").ok());
  for (int64_t peer = 0; peer < Ranks().size(); ++peer) {
    ASSERT_TRUE(Ranks().Get(Cat(name, "/", peer), kTimeout).ok()) << peer;
  }
}

TEST(MpiRendezvous, RanksReadWhatAllPublished) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{5000}, kRendezvousBytesMax}) {
    const std::string prefix = Cat("value/", bytes, "/");
    ASSERT_TRUE(Ranks().Publish(Cat(prefix, Ranks().rank()), ValueOf(Ranks().rank(), bytes)).ok());
    for (int64_t peer = 0; peer < Ranks().size(); ++peer) {
      const Result<std::string> got = Ranks().Get(Cat(prefix, peer), kTimeout);
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      EXPECT_EQ(*got, ValueOf(peer, bytes));
    }
  }
}

TEST(MpiRendezvous, KnowsItsPlace) {
  EXPECT_GE(Ranks().rank(), 0);
  EXPECT_LT(Ranks().rank(), Ranks().size());
  EXPECT_EQ(Ranks().node_rank(), Ranks().rank());  // The tests run on one machine.
}

TEST(MpiRendezvous, RefusesWhatItCannotKeep) {
  EXPECT_EQ(Ranks().Get("nobody's", std::chrono::milliseconds(1)).status().ToString(),
            "DEADLINE_EXCEEDED: rendezvous: nobody's was not published in 0.001 s");
  if (Ranks().rank() == 0) {
    EXPECT_TRUE(Ranks().Publish("once", "v").ok());
    EXPECT_TRUE(Ranks().Publish("once", "v").ok());
  }
  ASSERT_TRUE(Ranks().Get("once", kTimeout).ok());
  EXPECT_EQ(Ranks().Publish("once", "w").ToString(), "ALREADY_EXISTS: rendezvous: once holds other bytes already");
  EXPECT_EQ(Ranks().Publish("big", std::string(kRendezvousBytesMax + 1, 'x')).code(), Code::kResourceExhausted);
}

// A rank that waits must not take a processor from those that work.
TEST(MpiRendezvous, WaitsWithoutSpinning) {
  Meet("before waiting");
  const std::clock_t begin = std::clock();
  EXPECT_EQ(Ranks().Get("never", std::chrono::milliseconds(500)).status().code(), Code::kDeadlineExceeded);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 0.25);  // Of the process: its thread too.
}

}  // namespace
}  // namespace hir::comm
