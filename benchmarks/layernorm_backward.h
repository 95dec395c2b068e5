// examples/adaptive_layernorm_backward.py on one device, as text: x[i0, i1, i2] for rows of i2 = 1024.
#pragma once

#include <string_view>

namespace hir::bench {

inline constexpr std::string_view kLayerNormBackward =
    R"(fusion @adaptive_layernorm_backward(%weight: bf16[b:i0, b:i1, i2], %bias: bf16[b:i0, b:i1, i2],
    %scale: bf16[i0, b, i2], %grad: bf16[i0, i1, i2], %mean: f32[i0, i1], %rstd: f32[i0, i1, b], %x: bf16[i0, i1, i2]) {
  %mean_column = broadcast_in_dim(%mean) {shape=[i0, i1, 1], dims=[0, 1]}
  %t0 = cast(%x) {dtype=f32}
  %t1 = broadcast_in_dim(%mean_column) {shape=[i0, i1, i2], dims=[0, 1, 2]}
  %centered = sub(%t0, %t1)
  %rstd_full = broadcast_in_dim(%rstd) {shape=[i0, i1, i2], dims=[0, 1, 2]}
  %xhat = mul(%centered, %rstd_full)
  %weight_f = cast(%weight) {dtype=f32}
  %t2 = mul(%xhat, %weight_f)
  %t3 = cast(%bias) {dtype=f32}
  %normed = add(%t2, %t3)
  %t4 = cast(%scale) {dtype=f32}
  %t5 = constant() {value=1.0, dtype=f64}
  %t6 = add(%t5, %t4)
  %gain = cast(%t6) {dtype=bf16}
  %t7 = broadcast_in_dim(%gain) {shape=[i0, i1, i2], dims=[0, 1, 2]}
  %gain_full = cast(%t7) {dtype=f32}
  %g = cast(%grad) {dtype=f32}
  %t8 = sum(%g) {axes=[1], keepdim=false, dtype=null}
  %rounded = cast(%t8) {dtype=bf16}
  %row = broadcast_in_dim(%rounded) {shape=[i0, 1, i2], dims=[0, 2]}
  %t9 = cast(%row) {dtype=f32}
  %t10 = sum(%t9) {axes=[1], keepdim=false, dtype=null}
  %grad_shift = cast(%t10) {dtype=bf16}
  %t11 = mul(%normed, %g)
  %t12 = sum(%t11) {axes=[1], keepdim=false, dtype=null}
  %rounded.1 = cast(%t12) {dtype=bf16}
  %row.1 = broadcast_in_dim(%rounded.1) {shape=[i0, 1, i2], dims=[0, 2]}
  %t13 = cast(%row.1) {dtype=f32}
  %t14 = sum(%t13) {axes=[1], keepdim=false, dtype=null}
  %grad_gain = cast(%t14) {dtype=bf16}
  %g_normed = mul(%gain_full, %g)
  %t15 = sum(%g_normed) {axes=[0, 1], keepdim=false, dtype=null}
  %grad_bias = cast(%t15) {dtype=bf16}
  %t16 = mul(%xhat, %g_normed)
  %t17 = sum(%t16) {axes=[0, 1], keepdim=false, dtype=null}
  %grad_weight = cast(%t17) {dtype=bf16}
  %g_xhat = mul(%weight_f, %g_normed)
  %direct = mul(%rstd_full, %g_xhat)
  %t18 = mul(%centered, %g_xhat)
  %t19 = sum(%t18) {axes=[2], keepdim=false, dtype=null}
  %by_rstd = broadcast_in_dim(%t19) {shape=[i0, i1, 1], dims=[0, 1]}
  %t20 = neg(%direct)
  %t21 = sum(%t20) {axes=[2], keepdim=false, dtype=null}
  %by_mean = broadcast_in_dim(%t21) {shape=[i0, i1, 1], dims=[0, 1]}
  %t22 = constant() {value=-0.5, dtype=f64}
  %t23 = mul(%t22, %by_rstd)
  %t24 = constant() {value=3.0, dtype=f64}
  %t25 = pow(%rstd, %t24)
  %t26 = mul(%t23, %t25)
  %by_variance = sum(%t26) {axes=[2], keepdim=false, dtype=null}
  %t27 = broadcast_in_dim(%by_variance) {shape=[i0, i1, 1], dims=[0, 1]}
  %variance_full = broadcast_in_dim(%t27) {shape=[i0, i1, i2], dims=[0, 1, 2]}
  %t28 = sum(%by_mean) {axes=[2], keepdim=false, dtype=null}
  %mean_sum = broadcast_in_dim(%t28) {shape=[i0, i1, 1], dims=[0, 1]}
  %t29 = broadcast_in_dim(%mean_sum) {shape=[i0, i1, i2], dims=[0, 1, 2]}
  %t30 = constant() {value=0.0009765625, dtype=f64}
  %mean_part = mul(%t30, %t29)
  %t31 = constant() {value=2.0, dtype=f64}
  %t32 = mul(%t31, %variance_full)
  %t33 = mul(%t32, %centered)
  %t34 = constant() {value=1024.0, dtype=f64}
  %t35 = reciprocal(%t34)
  %variance_part = mul(%t33, %t35)
  %t36 = add(%mean_part, %variance_part)
  %t37 = add(%direct, %t36)
  %grad_x = cast(%t37) {dtype=bf16}
  return %grad_shift, %grad_gain, %grad_bias, %grad_weight, %grad_x
}
)";

}  // namespace hir::bench
