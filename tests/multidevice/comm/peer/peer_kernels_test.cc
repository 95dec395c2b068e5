// The kernels of comm/peer as cubins of real architectures; where what lies in a team's memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/gpu/nvrtc.h"
#include "multidevice/comm/peer/kernels_text.h"
#include "multidevice/comm/peer/peer_team.h"

namespace hir::comm {
namespace {

TEST(PeerKernels, AreCompiledWithoutSpills) {
  const auto version = codegen::gpu::NvrtcVersion();
  if (!version.ok()) GTEST_SKIP() << "SKIPPED: " << version.status().ToString();
  for (const int architecture : {80, 90}) {
    const auto compiled = codegen::gpu::CompileCuda(base::Cat(kPeerIntrinsics, kPeerText), architecture);
    ASSERT_TRUE(compiled.ok()) << compiled.status().ToString();
    EXPECT_EQ(compiled->cubin.substr(1, 3), "ELF");
    for (const char* name : {"hir_peer_push", "hir_peer_reduce"}) {
      const auto resources = codegen::gpu::ResourcesOf(compiled->log, name);
      EXPECT_GT(resources.registers, 0) << name;
      EXPECT_EQ(resources.spill_bytes, 0) << name << " for sm_" << architecture;
    }
  }
}

// Nothing overlaps, nothing is outside, for any number of ranks and any memory.
TEST(PeerLayout, EverythingHasItsPlace) {
  for (const int64_t ranks : {2, 3, 8, kPeerRanksMax}) {
    for (const int64_t bytes : {PeerLayout::LeastBytes(ranks), int64_t{5'000'000}, kPeerTeamBytes}) {
      const PeerLayout layout(ranks, bytes);
      std::vector<std::pair<int64_t, int64_t>> parts = {{layout.control(), 8 * kPushControlWords}};
      for (const int64_t word : layout.words()) parts.emplace_back(word, 8);
      parts.emplace_back(layout.rooms(), 2 * ranks * layout.push_units() * 16);
      const int64_t to = ranks - 1;
      for (int64_t from = 0; from + 1 < ranks; ++from) {
        for (const int half : {0, 1}) parts.emplace_back(layout.piece(to, from, half), layout.piece_bytes());
      }
      std::sort(parts.begin(), parts.end());
      for (size_t i = 0; i < parts.size(); ++i) {
        EXPECT_GT(parts[i].second, 0);
        EXPECT_LE(parts[i].first + parts[i].second, i + 1 < parts.size() ? parts[i + 1].first : bytes) << ranks;
      }
      EXPECT_EQ(layout.words().back(), layout.written(ranks - 1));
      EXPECT_EQ(layout.free_words().front(), layout.free(0, 0));
      EXPECT_EQ(layout.free_words().back(), layout.free(ranks - 1, 1));
    }
  }
}

}  // namespace
}  // namespace hir::comm
