"""Kernel classes and labels, on names that reports and profilers really spell."""

import pytest

from gpuatlas.compare import catalog
from gpuatlas.compare.kernels import classify, short_name

WGRAD = (
    "sm80_xmma_wgrad_implicit_gemm_indexed_f32f32_f32f32_f32_nhwckrsc_nhwc_tilesize32x32x8_stage3"
    "_warpsize1x2x1_g1_ffma_execute_kernel__5x_cudnn"
)
FPROP = (
    "sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize256x128x32_warpgroupsize2x1x1_g1"
    "_execute_segment_k_on_kernel__5x_cudnn"
)
COPY = (
    "void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]>"
    "(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)"
)
SILU = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::<unnamed>::silu_kernel("
    "at::TensorIteratorBase &)::[lambda(float) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)"
)
NAMES = {
    WGRAD: "conv_wgrad",
    "void cudnn::cnn::wgrad2d_grouped_direct_kernel<(bool)1, int, float>(T1)": "conv_wgrad",
    "void cudnn::cnn::wgrad_alg0_engine<float, 128, 5, 5>(int)": "conv_wgrad",
    "void convolveNd_dgrad_float_engine<float, (int)3, (int)512>(int, int)": "conv_dgrad",
    "void cudnn::detail::dgrad_engine<float, 512, 6, 5>(int)": "conv_dgrad",
    FPROP: "conv_fprop",
    "void implicit_convolve_sgemm<float, float, 1024, 5, 5>(int, int)": "conv_fprop",
    "void cask_plugin__5x_cudnn::init_device_workspace_kernel<xmma::implicit_gemm::fprop::Params>(T1)": "conv_fprop",
    "volta_scudnn_128x64_relu_interior_nn_v1": "conv_other",
    "void at::native::vol2col_kernel<float>(long)": "conv_other",
    "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float>(T3)": "layout_cudnn",
    "void cudnn::ops::nhwcToNchwKernel<float>(T3)": "layout_cudnn",
    "void cudnn::engines_precompiled::convertTensor_kernel<float, float>(T3, const T1 *)": "layout_cudnn",
    "void nhwcAddPaddingKernel<float, float, float>(int)": "layout_cudnn",
    COPY: "layout_torch",
    "void at::native::<unnamed>::CatArrayBatchedCopy<float, unsigned int, (int)4>(T1 *)": "copy",
    "[CUDA memcpy DtoD]": "copy",
    "void at::native::<unnamed>::RowwiseMomentsCUDAKernel<float>(long, T1)": "normalisation",
    "void at::native::<unnamed>::ComputeInternalGradientsCUDAKernel<float>(long)": "normalisation",
    "void at::native::<unnamed>::GammaBetaBackwardCUDAKernel1<float>(long)": "normalisation",
    "void at::native::elementwise_kernel<128, 2, at::native::GroupNormKernelImplInternal<float>>(int)": "normalisation",
    "void at::native::<unnamed>::cunn_SoftMaxForwardReg<float, float, float>(T3 *)": "attention",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Params)": "attention",
    "void at::native::<unnamed>::upsample_trilinear3d_out_frame<float, float>(int)": "resampling",
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4>(T1::Params)": "gemm",
    "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, float>(T1)": "gemm",
    "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float>(T1)": "gemm",
    "ampere_sgemm_128x64_nn": "gemm",
    "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float>>(T3)": "reduction",
    "triton_red_fused_mean_0": "reduction",
    SILU: "elementwise",
    "triton_poi_fused_add_mul_silu_3": "elementwise",
    "void at::native::index_elementwise_kernel<(int)128, (int)4>(int)": "elementwise",
    "void at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<float, (int)4>(T1)": "random_fill",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)": "random_fill",
    "void at::native::<unnamed>::multi_tensor_apply_kernel<TensorListMetadata<4>>(T1)": "optimizer",
    "my_own_kernel": "other",
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_classes(name, expected):
    assert classify(name) == expected


def test_every_class_is_reached_by_a_name():
    assert {c.name for c in catalog.load().classes} == set(NAMES.values())


def test_labels_fit_and_tell_kernels_apart():
    assert short_name(WGRAD) == "sm80 wgrad f32 nhwc 32x32x8"
    assert short_name(FPROP) == "sm90 fprop tf32 nhwc 256x128x32 segment_k_on"
    assert short_name(SILU) == "vectorized_elementwise_kernel<silu_kernel>"
    assert all(len(short_name(name)) <= 44 for name in NAMES)
