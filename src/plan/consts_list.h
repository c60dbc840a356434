/* X(name, value, meaning, source): the calibrated numbers of the cost model. Included several times. */
#include "plan/consts_infer_list.h"
X(gemm_ampere, 0.80, "share of the peak that a large bf16 matrix product reaches on Ampere", "matmul tables of the catalog: 0.87 alone")
