#include "multidevice/comm/ucx/ucx_worker.h"

#include <ucs/debug/log_def.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "multidevice/comm/ucx/private_segments.h"

namespace hir::comm {
namespace {

constexpr unsigned kBell = 0;  // The only active message.

// Long messages go through shared memory in pieces. UCX's own, 8 KiB, take longer where two cores have no cache in
// common (README.md). It takes memory for so many at a time: 4 MiB a rank, as with its own numbers. What the
// environment says comes first.
struct Setting {
  std::string key;
  const char* value;
};
const Setting kPieces[] = {{"SEG_SIZE", "32k"}, {"RX_BUFS_GROW", "128"}};

// For all of UCX's ways through shared memory, or for one of them.
bool IsInEnvironment(const std::string& key) {
  return std::ranges::any_of(std::array{"UCX_MM_", "UCX_POSIX_", "UCX_SYSV_"},
                             [&](const char* prefix) { return std::getenv((prefix + key).c_str()) != nullptr; });
}

Status Failed(std::string_view what, ucs_status_t status) {
  return Unavailable(base::Cat("ucx: ", what, ": ", ucs_status_string(status)));
}

Status Outcome(ucs_status_t status, int64_t expected, size_t length) {
  if (status == UCS_ERR_CANCELED) return {Code::kCancelled, "cancelled"};
  if (status == UCS_ERR_MESSAGE_TRUNCATED || (status == UCS_OK && std::cmp_not_equal(length, expected))) {
    return InvalidArgument(base::Cat("a message of ", length, " bytes came where ", expected, " were expected"));
  }
  return status == UCS_OK ? Status() : Failed("message", status);
}

void Finish(UcxRequest& request, ucs_status_t status, size_t length) {
  request.handle = nullptr;
  request.Over(Outcome(status, request.bytes, length));
}

void OnSent(void* handle, ucs_status_t status, void* user_data) {
  auto& request = *static_cast<UcxRequest*>(user_data);
  ucp_request_free(handle);
  Finish(request, status, static_cast<size_t>(request.bytes));
}

void OnReceived(void* handle, ucs_status_t status, const ucp_tag_recv_info_t* info, void* user_data) {
  ucp_request_free(handle);
  Finish(*static_cast<UcxRequest*>(user_data), status, info->length);
}

// UCX warns of every message that a failed generation leaves behind when its worker goes, hundreds of lines of what
// the Status has said already. Errors still show, and everything does when the environment asks for a level.
ucs_log_func_rc_t DropWarnings(const char*, unsigned, const char*, ucs_log_level_t level,
                               const ucs_log_component_config_t*, const char*, va_list) {
  return level >= UCS_LOG_LEVEL_WARN ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

void QuietLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_log_push_handler(DropWarnings);
  });
}

// A UCX configuration, released at the end.
struct Config {
  ~Config() {
    if (handle != nullptr) ucp_config_release(handle);
  }
  ucp_config_t* handle = nullptr;
};

}  // namespace

Result<std::unique_ptr<UcxWorker>> UcxWorker::Create(const std::string& transports) {
  QuietLog();
  KeepSegmentsPrivate();
  Config config;
  if (const auto s = ucp_config_read(nullptr, nullptr, &config.handle); s != UCS_OK) return Failed("configuration", s);
  if (std::getenv("UCX_TLS") == nullptr) {
    const auto s = ucp_config_modify(config.handle, "TLS", transports.c_str());
    if (s != UCS_OK) return Failed(base::Cat("transports ", transports), s);
  }
  for (const Setting& setting : kPieces) {
    if (IsInEnvironment(setting.key)) continue;
    const auto s = ucp_config_modify(config.handle, ("MM_" + setting.key).c_str(), setting.value);
    if (s != UCS_OK) return Failed(setting.key, s);
  }
  std::unique_ptr<UcxWorker> worker(new UcxWorker());
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (const auto s = ucp_init(&params, config.handle, &worker->context_); s != UCS_OK) return Failed("start", s);
  ucp_worker_params_t worker_params = {};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (const auto s = ucp_worker_create(worker->context_, &worker_params, &worker->worker_); s != UCS_OK) {
    return Failed("worker", s);
  }
  ucp_am_handler_param_t bell = {};
  bell.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
  bell.id = kBell;
  bell.cb = [](void*, const void*, size_t, void*, size_t, const ucp_am_recv_param_t*) { return UCS_OK; };
  if (const auto s = ucp_worker_set_am_recv_handler(worker->worker_, &bell); s != UCS_OK) return Failed("handler", s);
  if (const auto s = ucp_worker_get_efd(worker->worker_, &worker->fd_); s != UCS_OK) return Failed("event fd", s);
  return worker;
}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

Result<std::string> UcxWorker::Address() const {
  ucp_address_t* address = nullptr;
  size_t length = 0;
  if (const auto s = ucp_worker_get_address(worker_, &address, &length); s != UCS_OK) return Failed("address", s);
  std::string bytes(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(worker_, address);
  return bytes;
}

Status UcxWorker::Connect(int64_t peer, std::string_view address) {
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
  if (std::cmp_less_equal(endpoints_.size(), peer)) endpoints_.resize(static_cast<size_t>(peer) + 1, nullptr);
  const auto s = ucp_ep_create(worker_, &params, &endpoints_[static_cast<size_t>(peer)]);
  return s == UCS_OK ? Status() : Failed(base::Cat("connection to rank ", peer), s);
}

void UcxWorker::Send(int64_t peer, uint64_t tag, const std::byte* data, int64_t bytes, UcxRequest& request) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = OnSent;
  param.user_data = &request;
  request.bytes = bytes;
  const ucs_status_ptr_t result =
      ucp_tag_send_nbx(endpoints_[static_cast<size_t>(peer)], data, static_cast<size_t>(bytes), tag, &param);
  if (UCS_PTR_IS_PTR(result)) {
    request.handle = result;
  } else {
    Finish(request, UCS_PTR_RAW_STATUS(result), static_cast<size_t>(bytes));
  }
}

void UcxWorker::Recv(uint64_t tag, std::byte* data, int64_t bytes, UcxRequest& request) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv = OnReceived;
  param.user_data = &request;
  request.bytes = bytes;
  const ucs_status_ptr_t result =
      ucp_tag_recv_nbx(worker_, data, static_cast<size_t>(bytes), tag, ~uint64_t{0}, &param);
  if (UCS_PTR_IS_PTR(result)) {
    request.handle = result;
  } else {
    // UCX does not say here how long it was (its recv_info stays empty).
    Finish(request, UCS_PTR_RAW_STATUS(result), static_cast<size_t>(bytes));
  }
}

void UcxWorker::Cancel(UcxRequest& request) {
  if (request.handle != nullptr) ucp_request_cancel(worker_, request.handle);
}

void UcxWorker::Ring(int64_t peer) {
  const ucp_request_param_t param = {};
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(endpoints_[static_cast<size_t>(peer)], kBell, nullptr, 0, nullptr, 0, &param);
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);  // It goes on by itself.
}

void UcxWorker::Await(ucs_status_ptr_t request, base::Nanos deadline) {
  if (!UCS_PTR_IS_PTR(request)) return;
  while (ucp_request_check_status(request) == UCS_INPROGRESS && base::Clock::Steady().Now() < deadline) {
    ucp_worker_progress(worker_);
  }
  ucp_request_free(request);
}

void UcxWorker::Close(base::Nanos timeout) {
  const base::Nanos deadline = base::Clock::Steady().Now() + timeout;
  const ucp_request_param_t param = {};
  Await(ucp_worker_flush_nbx(worker_, &param), deadline);
}

}  // namespace hir::comm
