#include "csrc/ir/op_info.h"

namespace hir::ir {

const OpInfo* OpSet::Find(std::string_view op_name) const {
  for (const OpInfo& info : ops) {
    if (info.name == op_name) return &info;
  }
  return nullptr;
}

}  // namespace hir::ir
