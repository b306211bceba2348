"""The primitives without a rule, each with its reason: FLOW, UNPRICED, UNREACHABLE, and what only some jax have.

Every primitive that is alive after jax's public modules are imported is in RULES or in one of the first three.
"""

from __future__ import annotations

FLOW = {
    "jit": "a call",
    "call": "a call",
    "closed_call": "a call",
    "jaxpr_call": "a call inside a kernel",
    "composite": "a call with a name; its jaxpr is its meaning",
    "eval_jaxpr": "a call",
    "remat2": "a checkpointed call",
    "remat_opt": "a custom_vjp's forward program under remat",
    "custom_jvp_call": "a call; the derivative's rule is not run",
    "custom_jvp_call_jaxpr": "a call; kept by jax for old exports",
    "custom_vjp_call": "a call; the derivative's rule is not run",
    "custom_vmap_call": "a call; the batching rule is not run",
    "custom_partitioning": "a call; how it is split is the partitioner's choice",
    "linear_call": "a call; its transpose is not run",
    "custom_linear_solve": "the forward solve runs, its transpose does not",
    "cudnn_fusion": "a call that cuDNN fuses",
    "fused_call": "a call that XLA fuses",
    "custom_fusion": "a call inside a kernel",
    "fusible": "a call inside a kernel",
    "compute_on": "a call on another unit of the machine",
    "xla_metadata_call": "a call with a scheduling group",
    "scan": "a loop with a static trip count",
    "while": "a loop",
    "cond": "a branch",
    "shard_map": "one device's part of a program",
    "run_state": "a program on references",
    "run_scoped": "a program with scratch memory, inside a kernel",
    "core_map": "one core's part of a kernel",
    "mpmd_map": "kernels on several kinds of core",
    "pallas_call": "a kernel body times its grid",
    "emit_pipeline": "a loop inside a kernel",
    "pipeline_body": "one step of that loop",
    "parallel_loop": "a loop on a sparse core",
}
"""Programs inside programs: flattened while tracing, never priced as one op. {name: what it is}"""

UNPRICED = {
    "ffi_call": "a foreign function: only its author knows its work",
    "call_exported": "a serialized program: profile the function that it was exported from",
    "tpu_custom_call": "a compiled Mosaic kernel: profile the pallas_call that made it",
    "mosaic_gpu_p": "a compiled Mosaic GPU kernel",
    "call_hi_primitive": "a user's own high-level primitive: its work is in its class",
    "call_hi_primitive_linearized": "a user's own high-level primitive, linearized",
    "elementwise_inline_asm": "PTX text",
    "elementwise_inline_asm_p": "PTX text",
    "inline_mgpu": "hand-written Mosaic GPU code",
    "inline_mgpu_p": "hand-written Mosaic GPU code",
    "multimem_load_reduce": "a reduction inside the NVLink switch",
    "multimem_store": "a store to all devices by the NVLink switch",
    "spsolve": "a sparse direct solve: its fill-in depends on the values' places",
}
"""Opaque primitives that no formula can price honestly: bytes only, status unknown. {name: why}"""

UNREACHABLE = {
    "custom_lin": "stands only inside linearization, never in a finished jaxpr",
    "unreachable": "the missing transpose of a linear_call: running it is an error",
    "stage": "eager arrays only",
    "remove_memory_space": "made by the Pallas interpreter",
    "_copysign": "made while lowering a Mosaic GPU kernel",
}
"""Primitives that no user's jaxpr can hold. {name: why}"""

_ONLY_0_10 = (
    "box_get", "box_set", "call", "closed_call", "core_map", "debug_barrier_p", "elementwise_inline_asm_p",
    "fusible", "inline_mgpu_p", "jaxpr_call", "log_extend", "log_read", "new_box", "new_log", "pbroadcast_done",
    "pbroadcast_start", "psum_start", "reduced_vary_cast_p", "set_max_registers_p", "unique",
    "unreduced_psum_start", "unreduced_reduce_scatter_start", "vary_unreduced_cast_p",
    "wgmma_accumulator_deref_p", "wgmma_accumulator_store_p",
)  # fmt: skip

_ONLY_0_12 = (
    "barrier_arrive_and_wait", "conv", "debug_barrier", "elementwise_inline_asm", "has_memory_space",
    "inline_mgpu", "log2", "matmul_lhs_fifo", "matmul_pop_fifo", "mma", "mosaic_gpu_reduce_max",
    "mosaic_gpu_reduce_min", "mosaic_gpu_reduce_prod", "mosaic_gpu_reduce_sum", "one_minus_square",
    "pbroadcast_dynamic", "polynomial", "reduced_vary_cast", "relayout", "scan_count", "set_max_registers",
    "store", "unreduced_pmax", "unreduced_pmin", "vary_unreduced_cast", "wait_gmem_to_smem",
    "wgmma_accumulator_deref", "wgmma_accumulator_store",
)  # fmt: skip

OTHER_VERSIONS = {**dict.fromkeys(_ONLY_0_10, "0.10"), **dict.fromkeys(_ONLY_0_12, "0.12")}
"""Entries above, and rules, that only some supported versions of jax have. {name: a version that has it}"""
