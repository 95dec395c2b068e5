// A cuBLASLt of the tests: it computes on host memory what descriptors say, element by element, by cuBLASLt's
// documented meaning of them (column-major matrices), and refuses what the real one refuses.
#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/base/dtype.h"

namespace {

struct Layout {
  cudaDataType_t type = CUDA_R_32F;
  uint64_t rows = 0, columns = 0;
  int64_t ld = 0, batch_stride = 0;
  int32_t batches = 1;
};
struct Product {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  cublasOperation_t left = CUBLAS_OP_N, right = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  cudaDataType_t bias_type = CUDA_R_32F;
};
struct Preference {
  size_t workspace_bytes = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};
};
// What an algorithm was chosen for; written into its opaque words.
struct Chosen {
  uint64_t magic = 0x1b1a5;
  uint64_t alignments[4] = {};
  uint64_t workspace_bytes = 0;
  uint64_t problem = 0;
  uint64_t bias_alignment = 256;
};
static_assert(sizeof(Chosen) <= sizeof(cublasLtMatmulAlgo_t));

int heuristics = 0, products = 0, compute_type = 0;

// The layouts that the opaque handles stand for.
Layout& Of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<Layout*>(layout); }
Product& Of(cublasLtMatmulDesc_t product) { return *reinterpret_cast<Product*>(product); }
Preference& Of(cublasLtMatmulPreference_t p) { return *reinterpret_cast<Preference*>(p); }

bool HasBias(const Product& product) { return (static_cast<unsigned>(product.epilogue) & CUBLASLT_EPILOGUE_BIAS) != 0; }

// Of an address; the library takes one that it does not know for the best.
uint64_t AlignmentOf(const void* address) {
  const auto value = reinterpret_cast<uint64_t>(address);
  return value == 0 ? 256 : std::min<uint64_t>(value & (~value + 1), 256);
}

double Activated(cublasLtEpilogue_t epilogue, double x) {
  const auto bits = static_cast<unsigned>(epilogue);
  if (bits & CUBLASLT_EPILOGUE_RELU) return x <= 0 ? 0 : x;
  if ((bits & CUBLASLT_EPILOGUE_GELU) == 0) return x;
  return 0.5 * x * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

// 10 bits of mantissa.
double ToTf32(double value) {
  auto single = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &single, sizeof(bits));
  bits = (bits + 0x1000) & 0xffffe000U;
  std::memcpy(&single, &bits, sizeof(bits));
  return single;
}

double Widen(const void* data, int64_t at, cudaDataType_t type) {
  const auto read = [&]<typename T>(T value) {
    std::memcpy(&value, static_cast<const T*>(data) + at, sizeof(value));
    return value;
  };
  if (type == CUDA_R_64F) return read(double{});
  if (type == CUDA_R_32F) return read(float{});
  const uint16_t bits = read(uint16_t{});
  return type == CUDA_R_16F ? hir::Float16ToFloat(bits) : hir::BFloat16ToFloat(bits);
}

void Narrow(void* data, int64_t at, cudaDataType_t type, double value) {
  const auto write = [&](auto v) {
    std::memcpy(static_cast<char*>(data) + at * static_cast<int64_t>(sizeof(v)), &v, sizeof(v));
  };
  if (type == CUDA_R_64F) return write(value);
  if (type == CUDA_R_32F) return write(static_cast<float>(value));
  const auto single = static_cast<float>(value);
  write(type == CUDA_R_16F ? hir::FloatToFloat16(single) : hir::FloatToBFloat16(single));
}

bool IsValid(const Layout& layout) {
  return layout.rows > 0 && layout.columns > 0 && layout.batches > 0 && layout.ld >= static_cast<int64_t>(layout.rows);
}

struct Shape {
  uint64_t m = 0, n = 0, k = 0;
  bool ok = false;
};
Shape ShapeOf(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
  const bool ta = product.left == CUBLAS_OP_T, tb = product.right == CUBLAS_OP_T;
  Shape shape = {ta ? a.columns : a.rows, tb ? b.rows : b.columns, ta ? a.rows : a.columns, false};
  const uint64_t b_k = tb ? b.columns : b.rows;
  const bool wide = d.type == CUDA_R_64F;
  shape.ok = IsValid(a) && IsValid(b) && IsValid(d) && shape.k == b_k && d.rows == shape.m && d.columns == shape.n &&
             a.type == d.type && b.type == d.type && a.batches == d.batches && b.batches == d.batches &&
             (d.batches == 1 || d.batch_stride > 0) && product.scale == (wide ? CUDA_R_64F : CUDA_R_32F) &&
             (wide == (product.compute == CUBLAS_COMPUTE_64F)) &&
             (product.compute != CUBLAS_COMPUTE_32F_FAST_TF32 || d.type == CUDA_R_32F);
  return shape;
}

uint64_t Fingerprint(const Product& product, const Layout& a, const Layout& b, const Layout& d) {
  uint64_t hash = 17;
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15; };
  for (const Layout* layout : {&a, &b, &d}) {
    for (const uint64_t value :
         {static_cast<uint64_t>(layout->type), layout->rows, layout->columns, static_cast<uint64_t>(layout->ld),
          static_cast<uint64_t>(layout->batch_stride), static_cast<uint64_t>(layout->batches)})
      mix(value);
  }
  for (const uint64_t value : {static_cast<uint64_t>(product.left), static_cast<uint64_t>(product.right),
                               static_cast<uint64_t>(product.epilogue), static_cast<uint64_t>(product.compute)})
    mix(value);
  return hash;
}

// One call, as it was asked for.
struct Work {
  Product product;
  Layout left, right, result;
  Shape shape;
  size_t workspace_bytes;
  const void *a, *b, *c;
  void *d, *workspace;
  double alpha, beta;
};

void Run(const Work& w) {
  const auto& [product, left, right, result, shape, workspace_bytes, a, b, c, d, workspace, alpha, beta] = w;
  const bool bias = HasBias(product);
  const bool tf32 = product.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if (workspace_bytes > 0) std::memset(workspace, 0xee, workspace_bytes);
  std::vector<double> column(shape.m);
  for (int32_t batch = 0; batch < result.batches; ++batch) {
    const auto read = [&](const void* data, const Layout& layout, bool transposed, uint64_t i, uint64_t j) {
      const auto at = static_cast<int64_t>(transposed ? j : i) + static_cast<int64_t>(transposed ? i : j) * layout.ld +
                      batch * layout.batch_stride;
      const double value = Widen(data, at, layout.type);
      return tf32 && data != c ? ToTf32(value) : value;
    };
    for (uint64_t j = 0; j < shape.n; ++j) {
      for (uint64_t i = 0; i < shape.m; ++i) {
        double sum = 0;
        for (uint64_t k = 0; k < shape.k; ++k) {
          sum += read(a, left, product.left == CUBLAS_OP_T, i, k) * read(b, right, product.right == CUBLAS_OP_T, k, j);
        }
        sum *= alpha;
        if (beta != 0) sum += beta * read(c, result, false, i, j);
        if (bias) sum += Widen(product.bias, static_cast<int64_t>(i), product.bias_type);
        column[i] = Activated(product.epilogue, sum);
      }
      for (uint64_t i = 0; i < shape.m; ++i) {
        Narrow(d, static_cast<int64_t>(i + j * static_cast<uint64_t>(result.ld)) + batch * result.batch_stride,
               result.type, column[i]);
      }
    }
  }
}

// Where set, calls are queued on their streams by it: cuLaunchHostFunc of a simulated driver.
using Queue = int (*)(void* stream, void (*run)(void*), void* data);
Queue queue = nullptr;

}  // namespace

extern "C" {

// For the test: what was asked since the last call, and the compute type of the last product.
int FakeComputeType() { return compute_type; }
int FakeHeuristics() { return std::exchange(heuristics, 0); }
int FakeProducts() { return std::exchange(products, 0); }
void FakeQueueThrough(void* function) { queue = reinterpret_cast<Queue>(function); }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED   ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
                                                 : "CUBLAS_STATUS_OTHER";
}
size_t cublasLtGetVersion() { return 130002; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *product = reinterpret_cast<cublasLtMatmulDesc_t>(new Product{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete &Of(product);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  Product& product = Of(desc);
  const auto set = [&](auto& field) {
    if (bytes != sizeof(field)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) return set(product.left);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) return set(product.right);
  if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE) return set(product.epilogue);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER) return set(product.bias);
  if (attribute == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) return set(product.bias_type);
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &Of(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t desc, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  Layout& layout = Of(desc);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof(layout.batches)) {
    std::memcpy(&layout.batches, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof(layout.batch_stride)) {
    std::memcpy(&layout.batch_stride, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete &Of(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  Preference& p = Of(preference);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof(size_t)) {
    std::memcpy(&p.workspace_bytes, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  const int i = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (i < 0 || i > 3 || bytes != sizeof(uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&p.alignments[i], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int wanted, cublasLtMatmulHeuristicResult_t results[], int* found) {
  ++heuristics;
  *found = 0;
  const Product& product = Of(desc);
  const Shape shape = ShapeOf(product, Of(a), Of(b), Of(d));
  if (!shape.ok || wanted != 1 || c != d) return CUBLAS_STATUS_INVALID_VALUE;
  // As the real one for some types: no epilogue. And shapes for which there is nothing, or no activation, or no bias.
  const bool plain = product.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  const bool activates = !plain && product.epilogue != CUBLASLT_EPILOGUE_BIAS;
  if (!plain && Of(d).type == CUDA_R_64F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (shape.m == 77 && shape.n == 77) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (activates && shape.m % 7 == 3) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (HasBias(product) && shape.m % 11 == 5) return CUBLAS_STATUS_NOT_SUPPORTED;
  Chosen chosen;
  chosen.workspace_bytes = shape.k % 2 == 0 ? 0 : std::min<size_t>(Of(preference).workspace_bytes, 1000 + 8 * shape.k);
  for (int i = 0; i < 4; ++i) chosen.alignments[i] = Of(preference).alignments[i];
  chosen.problem = Fingerprint(product, Of(a), Of(b), Of(d));
  if (HasBias(product)) chosen.bias_alignment = AlignmentOf(product.bias);
  results[0] = {};
  std::memcpy(&results[0].algo, &chosen, sizeof(chosen));
  results[0].workspaceSize = chosen.workspace_bytes;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_desc, const void* b, cublasLtMatrixLayout_t b_desc,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_desc, void* d,
                              cublasLtMatrixLayout_t d_desc, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  ++products;
  const Product& product = Of(desc);
  compute_type = product.compute;
  const Layout &left = Of(a_desc), &right = Of(b_desc), &result = Of(d_desc);
  const Shape shape = ShapeOf(product, left, right, result);
  Chosen chosen;
  std::memcpy(static_cast<void*>(&chosen), algorithm, sizeof(chosen));
  const bool bias = HasBias(product);
  if (!shape.ok || c_desc != d_desc || c != d || stream == nullptr || chosen.magic != Chosen().magic ||
      chosen.problem != Fingerprint(product, left, right, result) || workspace_bytes < chosen.workspace_bytes ||
      (workspace_bytes > 0 && workspace == nullptr) ||
      (bias && (product.bias == nullptr || product.bias_type != result.type ||
                AlignmentOf(product.bias) < chosen.bias_alignment))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (reinterpret_cast<uint64_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  const void* const addresses[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    if (reinterpret_cast<uint64_t>(addresses[i]) % chosen.alignments[i] != 0) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const Work work = {product,
                     left,
                     right,
                     result,
                     shape,
                     chosen.workspace_bytes,
                     a,
                     b,
                     c,
                     d,
                     workspace,
                     Widen(alpha, 0, product.scale),
                     Widen(beta, 0, product.scale)};
  if (queue == nullptr) {
    Run(work);
    return CUBLAS_STATUS_SUCCESS;
  }
  const auto run = [](void* data) {
    const std::unique_ptr<Work> own(static_cast<Work*>(data));
    Run(*own);
  };
  return queue(stream, run, new Work(work)) == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
