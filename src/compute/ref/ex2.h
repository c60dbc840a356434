/* ex2 - Hopper's instruction for powers of two (ex2.approx.ftz.f32) in plain C, to the bit. The unit takes x as a fixed
 * point number with 23 fraction bits, cut off; of a negative one the ones' complement. A table has its 2^23 answers for
 * [0, 1); the whole part is the exponent. Compared with an H200 for all 2^32 inputs: none differ. */
#ifndef ASH_COMPUTE_REF_EX2_H
#define ASH_COMPUTE_REF_EX2_H

/* 2^x. Results below 2^-126 are 0, and an infinity from 2^128 on; a NaN gives the one NaN of the tensor cores. Any
 * thread; the first call unpacks the table (32 MB). */
float ash_ex2(float x);

#endif
