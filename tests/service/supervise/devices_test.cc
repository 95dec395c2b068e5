// Goal: --devices is understood or refused by name; what of it can be used follows from the probe's answer.
#include "service/supervise/devices.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

std::string ErrorOf(std::string_view text) {
  const Result<DeviceRequest> request = ParseDevices(text);
  return request.ok() ? "OK" : request.status().ToString();
}

TEST(ParseDevices, Understands) {
  EXPECT_EQ(ParseDevices("cpu:3")->ordinals, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(ParseDevices("cuda:all")->all);
  EXPECT_EQ(ParseDevices("cuda:all")->kind, "cuda");
  EXPECT_EQ(ParseDevices("cuda:0,2")->ordinals, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(ParseDevices("cuda:2")->ordinals, (std::vector<int64_t>{2}));
  EXPECT_EQ(ParseDevices("cpu:64")->ordinals.size(), 64U);
}

TEST(ParseDevices, Refuses) {
  const std::string want = ": want cpu:N with N from 1 to 64, cuda:all, or GPUs by number such as cuda:0,2 (";
  const auto error = [&](const std::string& text, const std::string& why) {
    EXPECT_EQ(ErrorOf(text), "INVALID_ARGUMENT: " + text + want + why + ")");
  };
  error("cpu", "no colon");
  error("cpu:0", "no such number of CPU devices");
  error("cpu:65", "no such number of CPU devices");
  error("cpu:2,cuda:0", "cpu and cuda together; a daemon has devices of one kind");
  error("cuda:0,cuda:1", "cuda is named twice");
  error("cuda:0,0", "GPU 0 is named twice");
  error("cuda:1,x", "\"x\" is no GPU");
  error("cuda:", "\"\" is no GPU");
  error("cuda:-1", "\"-1\" is no GPU");
  error("rocm:0", "no kind of device is called rocm");
}

void Add(pb::Probed& probed, int64_t ordinal, int64_t architecture, const std::string& error = "") {
  pb::ProbedDevice& device = *probed.add_devices();
  device.set_ordinal(ordinal);
  device.mutable_target()->set_architecture(architecture);
  device.mutable_target()->set_multiprocessors(132 - ordinal);
  device.mutable_target()->set_shared_bytes(1000);
  device.mutable_target()->set_cudnn(ordinal != 3);
  if (error.empty()) return;
  device.mutable_error()->set_code(static_cast<int>(Code::kUnavailable));
  device.mutable_error()->set_message(error);
}

TEST(FromProbe, ServesWithWhatThereIs) {
  pb::Probed probed;
  Add(probed, 0, 90);
  Add(probed, 1, 90, "it is on fire");
  Add(probed, 2, 80);
  Add(probed, 3, 90);
  const Devices devices = FromProbe(*ParseDevices("cuda:all"), probed);
  ASSERT_EQ(devices.size(), 2);
  EXPECT_EQ(devices.NameOf(0), "cuda:0");
  EXPECT_EQ(devices.NameOf(1), "cuda:3");
  EXPECT_EQ(devices.target().architecture(), 90);
  EXPECT_EQ(devices.target().multiprocessors(), 129) << "the smallest one's";
  EXPECT_FALSE(devices.target().cudnn()) << "one of them lacks it";
  EXPECT_TRUE(devices.own_memory);
  ASSERT_EQ(devices.failed.size(), 2U);
  EXPECT_EQ(devices.failed[0].failure.ToString(), "UNAVAILABLE: it is on fire");
  EXPECT_EQ(devices.failed[1].failure.ToString(),
            "FAILED_PRECONDITION: its architecture is 80; this daemon's plans are for 90, that of "
            "cuda:0");
  EXPECT_TRUE(devices.failure.ok());
}

TEST(FromProbe, SaysWhyThereIsNone) {
  pb::Probed probed;
  EXPECT_EQ(FromProbe(*ParseDevices("cuda:all"), probed).failure.message(), "no GPU: the driver shows none");
  Add(probed, 5, 90, "no such GPU");
  EXPECT_EQ(FromProbe(*ParseDevices("cuda:5"), probed).failure.ToString(), "UNAVAILABLE: cuda:5: no such GPU");
  probed.mutable_error()->set_code(static_cast<int>(Code::kFailedPrecondition));
  probed.mutable_error()->set_message("no driver");
  EXPECT_EQ(FromProbe(*ParseDevices("cuda:5"), probed).failure.message(), "no driver");
}

TEST(FindDevices, AProbeThatDiesIsAnAnswer) {
  const Devices devices = FindDevices(*ParseDevices("cuda:all"), {.worker_path = "/bin/false", .worker_args = {}});
  EXPECT_EQ(devices.size(), 0);
  EXPECT_EQ(devices.failure.ToString(), "UNAVAILABLE: the process that looked for devices exited with 1");
}

}  // namespace
}  // namespace hir::service
