// Remembered: the tensors that a later head has to hear of, as this one tells nodes of them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "hostir/v1/node.pb.h"

namespace hir::service {

// Thread-safe.
class Remembered {
 public:
  void Add(::hostir::v1::TensorRecord tensor);
  void Forget(const std::string& handle);

  // The news since it was last called, in messages of moderate size.
  std::vector<::hostir::v1::Remember> Take();
  // All that there is; what Take will give is in it.
  std::vector<::hostir::v1::Remember> All() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, ::hostir::v1::TensorRecord> tensors_;  // By handle. Guarded by mutex_, as all here.
  std::map<std::string, bool> news_;                           // By handle: whether it is there.
  int64_t count_ = 0;
};

}  // namespace hir::service
