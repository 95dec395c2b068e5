// Upload and Download: a tensor on its way in or out, piece by piece.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/fd.h"
#include "csrc/base/status.h"
#include "service/store/shard_map.h"
#include "service/store/store.h"
#include "service/store/tensor.h"

namespace hir::service {

// Elements of what travels, in memory that the daemon and a client both have.
struct SharedPart {
  int64_t device = 0;                 // Whose shard it is, or a copy of.
  std::vector<mesh::Range> elements;  // One per axis, of what travels.
  std::vector<int64_t> stored;        // Extents in memory, row-major: of a block, which may be longer.
  int64_t bytes = 0;
  const SharedMemory* memory = nullptr;  // The daemon's, which a client may map. Null: a client's, of a device.
  int64_t within = 0, offset = 0;        // As of ShardSet::Shard.
};

// Threads: one at a time. Destroyed before End: nothing is left of it.
class Upload {
 public:
  // `spec`: what to store; `sent_once`: the axes of which one element comes. The store outlives it.
  // Errors: kInvalidArgument; kResourceExhausted naming a limit.
  static Result<std::unique_ptr<Upload>> Begin(TensorStore& store, std::string session, const TensorSpec& spec,
                                               const std::vector<bool>& sent_once);

  int64_t total_bytes() const { return map_.sent_bytes(); }
  // Charges the next bytes, before they are written.
  // Errors: kInvalidArgument for more than was declared; kResourceExhausted.
  Status Expect(int64_t bytes);
  // Takes some of those that were charged.
  void Write(std::string_view part);

  // Charges all of it: somebody else writes the bytes, to where Parts says, before End.
  // Errors: kFailedPrecondition: they are repeated, or there are none; kResourceExhausted.
  Status Reserve();
  std::vector<SharedPart> Parts() const;
  TensorSpec sent() const;  // As of Download, whole.

  struct Stored {
    std::string handle;
    std::shared_ptr<Tensor> tensor;
  };
  // Errors: kInvalidArgument for less than was declared; kFailedPrecondition when the session has ended.
  Result<Stored> End();

 private:
  Upload(TensorStore& store, std::string session, TensorSpec spec, const std::vector<bool>& sent_once,
         std::shared_ptr<ShardSet> shards);

  TensorStore& store_;
  const std::string session_;
  const TensorSpec spec_;
  const ShardMap map_;
  const std::shared_ptr<ShardSet> shards_;
  const std::shared_ptr<HostShards> host_;
  const std::vector<std::byte*> addresses_;
  int64_t received_bytes_ = 0;
};

// A tensor, or the elements that one device holds of it, as bytes to send. Threads: one at a time.
class Download {
 public:
  // Whose shards, by their positions in the mesh, a download reads: of `device` alone, or without of one device for
  // each part. kInvalidArgument when `device` holds none.
  static Result<std::vector<size_t>> Positions(const Tensor& tensor, std::optional<int64_t> device);
  // `host` has the shards at Positions(*tensor, device). REQUIRES: the tensor was ready; Positions is OK.
  Download(std::shared_ptr<Tensor> tensor, std::optional<int64_t> device, std::shared_ptr<HostShards> host);

  const TensorSpec& sent() const { return sent_; }  // What travels: its axes as they lie in memory.
  int64_t total_bytes() const { return map_.sent_bytes(); }

  // The next at most `bytes_max` bytes; empty at the end.
  std::string Next(int64_t bytes_max);
  // Where the bytes are, as long as this lives.
  std::vector<SharedPart> Parts() const;

  // Before a client of `session` gets descriptors.
  void NoteReader(const std::string& session);
  // From now on whoever gets descriptors may write there. Errors: kPermissionDenied: another session made the tensor.
  Status AllowWrites(const std::string& session);
  bool is_writable() const { return is_writable_; }

 private:
  const std::shared_ptr<Tensor> tensor_;
  const std::optional<int64_t> device_;
  const std::shared_ptr<HostShards> host_;
  bool is_writable_ = false;
  const ShardMap map_;
  const std::vector<std::byte*> addresses_;
  TensorSpec sent_;
  int64_t sent_bytes_ = 0;
};

// A tensor on its way between ranks' devices that have memory of their own and memory of devices that a client has
// exported: past the host. Threads: one at a time.
class DeviceTransfer {
 public:
  enum class Way { kIn, kOut };
  // A new tensor, all of it charged, which a client has filled memory for; or `lends`: memory of a client's that is the
  // tensor's from then on. The store outlives it.
  // Errors: as of Upload::Begin; kFailedPrecondition: its elements are to go by the host, or cannot be lent.
  static Result<std::unique_ptr<DeviceTransfer>> In(TensorStore& store, const std::string& session,
                                                    const TensorSpec& spec, const std::vector<bool>& sent_once,
                                                    bool lends = false);
  // As of Download, of a tensor that only devices have.
  static Result<std::unique_ptr<DeviceTransfer>> Out(std::shared_ptr<Tensor> tensor, std::optional<int64_t> device);

  Way way() const { return way_; }
  bool lends() const { return lends_; }
  const std::shared_ptr<Tensor>& tensor() const { return tensor_; }
  const TensorSpec& sent() const { return sent_; }  // As of Download.
  int64_t total_bytes() const;                      // Of the shards.
  std::vector<SharedPart> Parts() const;

  // The client's descriptors, one for each part in order. Errors: kInvalidArgument: there are more or fewer.
  Status Offer(std::vector<base::Fd> memory);
  // Whether all is there that Commit needs: the client has written in memory that it had lent, or has offered some.
  bool is_offered() const { return !memory_.empty() || (way_ == Way::kIn && tensor_->shards().lent != nullptr); }
  // By the position of the shard in the mesh; those without are invalid. REQUIRES: is_offered().
  std::vector<base::Fd> TakeMemory();

 private:
  DeviceTransfer(Way way, std::shared_ptr<Tensor> tensor, std::optional<int64_t> device, std::vector<size_t> positions,
                 bool lends = false);

  const Way way_;
  const bool lends_;
  const std::shared_ptr<Tensor> tensor_;
  const std::optional<int64_t> device_;
  const std::vector<size_t> positions_;
  TensorSpec sent_;
  std::vector<base::Fd> memory_;
};

}  // namespace hir::service
