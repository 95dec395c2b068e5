// HIR_CHECK: for what only a bug of ours can make false. On in every build; aborts with file and line.
#pragma once

namespace hir::base {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace hir::base

#define HIR_CHECK(condition)                                                    \
  do {                                                                          \
    if (!(condition)) ::hir::base::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)
