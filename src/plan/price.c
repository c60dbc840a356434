/* Prices of machines. */
#include "plan/price.h"

struct ash_price ash_price_of(const struct ash_machine *machine)
{
    if (machine->usd_hour > 0) return (struct ash_price){.usd_hour = machine->usd_hour};
    return (struct ash_price){.usd_hour = machine->usd_hour_reserved, .reserved = machine->usd_hour_reserved > 0};
}

double ash_price_gpu_hour(const struct ash_machine *machine)
{
    return ash_price_of(machine).usd_hour / machine->gpus;
}
