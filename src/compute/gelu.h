/* gelu - the constants of both forms of GELU, shared by all backends. */
#ifndef ASH_COMPUTE_GELU_H
#define ASH_COMPUTE_GELU_H

#define ASH_GELU_SQRT_2_PI 0.797884583f /* sqrt(2 / pi) */
#define ASH_GELU_CUBE 0.044715f
#define ASH_GELU_SQRT_HALF 0.707106769f
#define ASH_GELU_DENSITY 0.398942292f /* 1 / sqrt(2 pi) */

#endif
