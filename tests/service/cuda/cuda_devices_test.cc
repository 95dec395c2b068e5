// Goal: whatever of a machine's GPUs cannot be used is named with its reason, and the daemon serves with the rest.
// Method: a daemon whose processes find a driver of ours (tests/csrc/device/cuda/fake_driver.h) under the name of
// NVIDIA's.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/service/support/daemon.h"
#include "tests/service/support/programs.h"

namespace hir::service {
namespace {

namespace fs = std::filesystem;

class CudaDevices : public testing::Test {
 protected:
  CudaDevices() {
    std::string name = (fs::temp_directory_path() / "hostir-driver-XXXXXX").string();
    folder = mkdtemp(name.data());
    Set({{"LD_LIBRARY_PATH", folder.string()}});
  }
  ~CudaDevices() override {
    for (const std::string& name : names_) unsetenv(name.c_str());
    fs::remove_all(folder);
  }
  void Set(const std::map<std::string, std::string>& environment) {
    for (const auto& [name, value] : environment) {
      setenv(name.c_str(), value.c_str(), 1);
      names_.push_back(name);
    }
  }
  void InstallDriver() { fs::create_symlink(HIR_FAKE_CUDA, folder / "libcuda.so.1"); }

  fs::path folder;  // What is a library in it is the machine's.

 private:
  std::vector<std::string> names_;
};

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(CudaDevices, OneOfSeveralThatDoesNotOpen) {
  InstallDriver();
  Set({{"FAKE_CUDA_DEVICES", "2"}, {"FAKE_CUDA_FAILING_DEVICE", "0"}});
  Daemon daemon({"--devices=cuda:all"});
  Client client(daemon);
  EXPECT_EQ(client.event().num_devices(), 1);
  const pb::StatusReply status = client.Status();
  ASSERT_EQ(status.devices_size(), 1);
  EXPECT_EQ(status.devices(0).kind(), "cuda");
  EXPECT_EQ(status.devices(0).number(), 0);
  EXPECT_EQ(status.devices(0).ordinal(), 1);
  EXPECT_NE(status.devices(0).model(), "");
  EXPECT_GT(status.devices(0).memory_bytes(), 0);
  EXPECT_GT(status.devices(0).pid(), 0);
  ASSERT_EQ(status.failed_devices_size(), 1);
  EXPECT_EQ(status.failed_devices(0).ordinal(), 0);
  EXPECT_EQ(status.failed_devices(0).error().code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Has(status.failed_devices(0).error().message(), "cuda:0")) << status.failed_devices(0).error().message();
  EXPECT_TRUE(status.serving());
  const Client::Put put = client.Upload(Header(pb::DTYPE_FLOAT32, {2}), Bytes({1, 2}));
  ASSERT_EQ(Text(put.status), "OK");
  EXPECT_EQ(Floats(client.Download(put.tensor.handle()).bytes), (std::vector<float>{1, 2}));
}

TEST_F(CudaDevices, ByNumber) {
  InstallDriver();
  Set({{"FAKE_CUDA_DEVICES", "2"}});
  Daemon daemon({"--devices=cuda:1,7"});
  Client client(daemon);
  const pb::StatusReply status = client.Status();
  ASSERT_EQ(status.devices_size(), 1);
  EXPECT_EQ(status.devices(0).ordinal(), 1);
  ASSERT_EQ(status.failed_devices_size(), 1);
  EXPECT_EQ(status.failed_devices(0).ordinal(), 7);
  EXPECT_EQ(status.failed_devices(0).error().code(), grpc::StatusCode::NOT_FOUND);
}

// What a daemon without a device says, and that it serves nevertheless.
void ExpectNone(const std::string& part, const std::string& other) {
  Daemon daemon({"--devices=cuda:all"});
  Client client(daemon);
  const std::string failure = client.Status().last_failure();
  EXPECT_TRUE(Has(failure, part) && Has(failure, other)) << failure;
  const grpc::Status refused = client.Compile("fusion @f(%x: f32[2]) {\n  return %x\n}\n").status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_TRUE(Has(refused.error_message(), "this daemon has no device: ") && Has(refused.error_message(), part))
      << Text(refused);
  EXPECT_EQ(client.Status().sessions(), 1);
}

TEST_F(CudaDevices, ADriverTooOld) {
  InstallDriver();
  Set({{"FAKE_CUDA_VERSION", "11040"}});
  ExpectNone("11.4", "12.0");
}

TEST_F(CudaDevices, NoDriver) {
  std::ofstream(folder / "libcuda.so.1") << "no library";
  ExpectNone("libcuda.so.1", "driver");
}

TEST_F(CudaDevices, NoGpu) {
  InstallDriver();
  Set({{"FAKE_CUDA_DEVICES", "0"}});
  ExpectNone("GPU", "");
}

}  // namespace
}  // namespace hir::service
