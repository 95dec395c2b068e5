// Goal: of each communication that a host program queues there is one record, found by its number, with its own bytes,
// whatever the order in which the program has them. Method: the plans of the corpus; bytes are compared with the types
// of the buffers that the host program communicates.
#include "service/planner/plan_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/ir/clone.h"
#include "csrc/ir/parse.h"
#include "host_ir/host_ops.h"
#include "tests/corpus/corpus.h"

namespace hir::service {
namespace {

namespace v1 = ::hostir::v1;

// "AllToAll" and "all_to_all" are alltoall.
std::string Plain(std::string_view type) {
  std::string out;
  for (const char c : type) {
    if (c != '_') out += static_cast<char>(std::tolower(c));
  }
  return out;
}

class PlanMessage : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto program = testing::ReadCorpus(GetParam());
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    sizes_ = program->sizes;
    auto plan = host::PlanProgram(ir::Clone(*program->graph), {.num_devices = program->num_devices});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    message_ = ToMessage(*plan, {}, {});
    auto host = ir::Parse(message_.host_program(), host::kHostOps);
    ASSERT_TRUE(host.ok()) << host.status().ToString();
    host_ = *std::move(host);
  }

  // For rank 0, whose places in meshes are 0.
  int64_t ValueOf(const ir::Expr* expr) const {
    const auto value = ir::Evaluate(expr, [&](std::string_view symbol) {
      const auto found = sizes_.find(std::string(symbol));
      return std::optional<int64_t>(found == sizes_.end() ? 0 : found->second);
    });
    EXPECT_TRUE(value.ok()) << value.status().ToString();
    return value.ok() ? *value : -1;
  }
  int64_t BytesOf(const ir::Value& buffer) const {
    int64_t bytes = DTypeBytes(buffer.type->dtype);
    for (const ir::Axis& axis : buffer.type->axes) {
      if (axis.kind == ir::AxisKind::kIteration) bytes *= ValueOf(axis.extent);
    }
    return bytes;
  }
  std::vector<const ir::Op*> Queued() const {
    std::vector<const ir::Op*> queued;
    ir::ForEachOp(host_->body, [&](const ir::Op* op) {
      if (host::CodeOf(*op) == host::HostOp::kCommunication) queued.push_back(op);
    });
    return queued;
  }

  fusion::SymbolValues sizes_;
  v1::Plan message_;
  std::unique_ptr<ir::Graph> host_;
};

TEST_P(PlanMessage, EachCommunicationHasItsRecord) {
  const std::vector<const ir::Op*> queued = Queued();
  size_t next = 0;
  ir::Graph scratch(host::kHostOps, "scratch");
  for (const v1::CommunicationRecord& record : message_.explanation().communications()) {
    ASSERT_GT(record.count(), 0);
    ASSERT_LE(next + static_cast<size_t>(record.count()), queued.size());
    for (int64_t i = 0; i < record.count(); ++i, ++next) {
      const ir::Op& op = *queued[next];
      SCOPED_TRACE(base::Cat("#", op.Int("seq"), " of ", record.tensor()));
      EXPECT_EQ(op.Int("seq"), record.number() + i) << "records are in queue order";
      const std::string type = Plain(op.Name("type")), wanted = Plain(record.type());
      // Chunks of what is scattered or gathered travel alone where roots are in no row of theirs.
      const bool chunk = type == "sendrecv" && (wanted == "scatter" || wanted == "gather");
      EXPECT_TRUE(chunk || type == wanted) << type << " for " << wanted;
      const bool grows = wanted == "allgather" || wanted == "gather";
      const int64_t bytes = BytesOf(*op.operands[grows ? 1 : 0]);
      const auto said = ir::ParseExtent(record.bytes(), scratch, {});
      ASSERT_TRUE(said.ok()) << record.bytes();
      EXPECT_EQ(ValueOf(*said), chunk ? bytes * record.count() : bytes) << record.bytes();
    }
  }
  EXPECT_EQ(next, queued.size()) << "communications without a record";
}

TEST_P(PlanMessage, SegmentsThatCommunicateAreNamedByNumber) {
  std::vector<std::string> wanted, got;
  for (const v1::CommunicationRecord& record : message_.explanation().communications())
    wanted.push_back(base::Cat(Plain(record.type()), " #", record.number()));
  for (const v1::SegmentRecord& segment : message_.explanation().segments()) {
    if (segment.kind() == "communication") got.push_back(Plain(segment.name()));
  }
  EXPECT_EQ(got, wanted);
}

INSTANTIATE_TEST_SUITE_P(Corpus, PlanMessage, ::testing::ValuesIn(testing::CorpusNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hir::service
