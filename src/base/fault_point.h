/* fault_point - places in the program at which a process can be told to die, so that tests reach moments that no signal
 * from outside can aim at. Any thread. */
#ifndef ASH_BASE_FAULT_POINT_H
#define ASH_BASE_FAULT_POINT_H

enum ash_fault_point {
    ASH_FAULT_NONE,
    ASH_FAULT_FORWARD,       /* in the forward pass */
    ASH_FAULT_BACKWARD,      /* in the backward pass */
    ASH_FAULT_REDUCE,        /* gradients are being reduced */
    ASH_FAULT_BEFORE_UPDATE, /* the sums are complete, the norm is not known */
    ASH_FAULT_IN_UPDATE,     /* some of the state is new */
    ASH_FAULT_AFTER_UPDATE,  /* all of it is new, and no peer knows yet */
    ASH_FAULT_VALIDATION,    /* in a validation */
    ASH_FAULT_SAVE,          /* a save has begun */
    ASH_FAULT_REFORM,        /* the next epoch is about to be formed */
    ASH_FAULT_TRANSFER,      /* the state is about to move to a new mesh */
    ASH_FAULT_FEED,          /* the state is on its way to newcomers while a step runs */
    ASH_FAULT_POINTS
};

/* Die, as if killed, when this process next comes to a place. ASH_FAULT_NONE: do not. */
void ash_fault_point_arm(enum ash_fault_point point);
/* The same, when it has been there that many times before. */
void ash_fault_point_arm_later(enum ash_fault_point point, unsigned times);
/* This is that place. */
void ash_fault_point_meet(enum ash_fault_point point);

#endif
