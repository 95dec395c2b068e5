#include "service/planner/pool_message.h"

#include "csrc/device/device.h"
#include "host_ir/pool_plan.h"
#include "host_ir/shapes.h"
#include "host_ir/unroll.h"

namespace hir::service {
namespace {

namespace v1 = ::hostir::v1;

void AddStretch(const host::Stretch& stretch, v1::PoolBuffer::Stretch* message) {
  message->set_stream(stretch.stream);
  message->set_first(stretch.from);
  message->set_last(stretch.to);
}

void AddBuffer(const host::PoolLife& life, v1::PoolRecord* record) {
  v1::PoolBuffer* buffer = record->add_buffers();
  ir::ExprPool pool;
  const ir::Type& type = *life.alloc->results[0]->type;
  const ir::Expr* elements = host::StorageElements(pool, type);
  buffer->set_bytes(ir::ToString(pool.Mul(pool.Const(DTypeBytes(type.dtype)), elements)));
  for (const host::Stretch& stretch : life.work) AddStretch(stretch, buffer->add_work());
  for (const host::Stretch& stretch : life.after) AddStretch(stretch, buffer->add_after());
}

}  // namespace

Status AddPools(const ir::Graph& host, v1::Plan* plan) {
  int64_t num_allocs = 0;
  ir::ForEachOp(host.body, [&](const ir::Op* op) { num_allocs += host::CodeOf(*op) == host::HostOp::kAlloc ? 1 : 0; });
  if (num_allocs > kPoolBuffersMax) return {};
  plan->set_pool_alignment(device::kAlignmentBytes);
  for (const host::RankClass& alike : host::RankClasses(host)) {
    HIR_ASSIGN(const host::PoolPlan pool, host::PoolPlan::Make(host, alike.rank));
    v1::PoolRecord* record = plan->add_pools();
    record->mutable_ranks()->Add(alike.ranks.begin(), alike.ranks.end());
    for (const host::PoolLife& life : pool.lives()) AddBuffer(life, record);
  }
  return {};
}

}  // namespace hir::service
