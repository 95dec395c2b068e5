// Library calls by the reference interpreter: slow, and right by definition.
#pragma once

#include "host_ir/eval/library.h"

namespace hir::testing {

// Thread-safe.
class InterpretedLibrary final : public host::LibrarySource {
 public:
  Result<std::unique_ptr<host::LibraryCall>> Make(const host::LibraryDesc& desc) override;
};

}  // namespace hir::testing
