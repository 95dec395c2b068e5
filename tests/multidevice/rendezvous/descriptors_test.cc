// File descriptors from rank to rank: threads as ranks, each with its own exchange.
#include "multidevice/rendezvous/descriptors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <functional>
#include <thread>

#include "csrc/base/text.h"
#include "multidevice/rendezvous/memory.h"

namespace hir::comm {
namespace {

using base::Cat;
using std::chrono::milliseconds;
using std::chrono::seconds;

void RunRanks(int64_t size, const std::function<void(int64_t rank, DescriptorExchange& exchange)>& body) {
  MemoryRendezvous rendezvous;
  std::vector<std::jthread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto exchange = DescriptorExchange::Create(rank, size, "at/", rendezvous, seconds(20));
      ASSERT_TRUE(exchange.ok()) << exchange.status().ToString();
      body(rank, **exchange);
    });
  }
}

base::Fd FileWith(const std::string& text) {
  base::Fd fd(memfd_create("descriptors_test", MFD_CLOEXEC));
  EXPECT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return fd;
}

std::string TextOf(const base::Fd& fd) {
  std::string text(64, '\0');
  const ssize_t bytes = pread(fd.get(), text.data(), text.size(), 0);
  text.resize(bytes < 0 ? 0 : static_cast<size_t>(bytes));
  return text;
}

// Two exchanges of all and one of some, whoever is first.
TEST(DescriptorExchange, EveryRankGetsThoseOfTheOthers) {
  RunRanks(4, [](int64_t rank, DescriptorExchange& exchange) {
    const std::vector<int64_t> all = {0, 1, 2, 3}, odd = {3, 1};
    for (const char* what : {"first", "second"}) {
      const base::Fd mine = FileWith(Cat(what, rank));
      const auto fds = exchange.Swap(what, all, mine.get(), seconds(20));
      ASSERT_TRUE(fds.ok()) << fds.status().ToString();
      for (int64_t other : all) {
        const base::Fd& fd = (*fds)[static_cast<size_t>(other)];
        EXPECT_EQ(fd.valid(), other != rank);
        EXPECT_EQ(fd.valid() ? TextOf(fd) : "", other == rank ? "" : Cat(what, other));
      }
    }
    if (rank % 2 == 0) return;
    const auto fds = exchange.Swap("odd", odd, rank == 1 ? -1 : FileWith("3").get(), seconds(20));
    ASSERT_TRUE(fds.ok()) << fds.status().ToString();
    EXPECT_EQ((*fds)[0].valid(), rank == 1);  // Rank 1 has none to give.
    EXPECT_FALSE((*fds)[1].valid());
  });
}

TEST(DescriptorExchange, AllAgreeOrNoneDoes) {
  RunRanks(3, [](int64_t rank, DescriptorExchange& exchange) {
    const std::vector<int64_t> all = {0, 1, 2};
    EXPECT_TRUE(*exchange.AllAgree("one", all, true, seconds(20)));
    EXPECT_FALSE(*exchange.AllAgree("two", all, rank != 1, seconds(20)));
  });
}

TEST(DescriptorExchange, ARankThatDoesNotComeIsNamed) {
  RunRanks(2, [](int64_t rank, DescriptorExchange& exchange) {
    if (rank == 1) return;
    const auto fds = exchange.Swap("alone", std::vector<int64_t>{0, 1}, -1, milliseconds(30));
    EXPECT_THAT(fds.status().ToString(), testing::AnyOf("DEADLINE_EXCEEDED: descriptors: rank 1 did not come to alone",
                                                        testing::StartsWith("INTERNAL: rank 1 cannot be reached: ")));
  });
}

TEST(DescriptorExchange, RanksThatAreApartAreRefused) {
  MemoryRendezvous rendezvous;
  ASSERT_TRUE(rendezvous.Publish("at/1", "0123456789abcdefelsewhere name").ok());
  EXPECT_EQ(DescriptorExchange::Create(0, 2, "at/", rendezvous, seconds(20)).status().ToString(),
            "UNAVAILABLE: descriptors: ranks 0 and 1 are on different machines, or in different network namespaces");
  ASSERT_TRUE(rendezvous.Publish("of/1", "").ok());
  EXPECT_EQ(DescriptorExchange::Create(0, 2, "of/", rendezvous, seconds(20)).status().ToString(),
            "UNAVAILABLE: descriptors: rank 1 has no socket");
}

// What others say to its socket without the token is not taken for a rank's.
TEST(DescriptorExchange, StrangersAreNotHeard) {
  MemoryRendezvous rendezvous;
  std::vector<std::jthread> threads;
  for (const int64_t rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      const auto exchange = *DescriptorExchange::Create(rank, 2, "at/", rendezvous, seconds(20));
      const std::string published = *rendezvous.Get(Cat("at/", 1 - rank), seconds(20));
      const std::string address = published.substr(published.find(' ', 16) + 1);
      sockaddr_un to = {};
      to.sun_family = AF_UNIX;
      address.copy(to.sun_path + 1, address.size());
      const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
      for (const std::string& text : {std::string("hello"), Cat("0123456789abcdef", rank, " nmeet"), std::string()}) {
        const base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        ASSERT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), bytes), 0);
        EXPECT_EQ(send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
      }
      EXPECT_TRUE(*exchange->AllAgree("meet", std::vector<int64_t>{0, 1}, true, seconds(20)));
    });
  }
}

}  // namespace
}  // namespace hir::comm
