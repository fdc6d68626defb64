//! Energy of a CPU from its totals: the one formula that the plugin's energy event and the page's
//! readers share.

/// Static power of a core type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StaticPower {
    /// While running, microwatts.
    pub active_uw: u32,
    /// While idle, microwatts; at most `active_uw`.
    pub idle_uw: u32,
}

/// Energy in microjoules of a CPU that, up to virtual time `now_ps`, was running for `active_ps`
/// and spent `dynamic_pj` on events. Static power acts over undilated time: a machine modelled
/// eight times slower does not burn eight times the energy.
///
/// It never decreases as long as its arguments do not.
pub fn energy_uj(
    power: StaticPower,
    dilation: u32,
    now_ps: u64,
    active_ps: u64,
    dynamic_pj: u64,
) -> u64 {
    let idle_ps = u128::from(now_ps.saturating_sub(active_ps));
    let stat =
        u128::from(active_ps) * u128::from(power.active_uw) + idle_ps * u128::from(power.idle_uw);
    // uW * ps = 1e-18 J
    let stat = stat / 1_000_000_000_000 / u128::from(dilation.max(1));
    u64::try_from(stat)
        .unwrap_or(u64::MAX)
        .saturating_add(dynamic_pj / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POWER: StaticPower = StaticPower {
        active_uw: 250_000,
        idle_uw: 40_000,
    };

    #[test]
    fn a_second_of_each() {
        let second = 1_000_000_000_000;
        assert_eq!(energy_uj(POWER, 1, second, second, 0), 250_000);
        assert_eq!(energy_uj(POWER, 1, second, 0, 0), 40_000);
        assert_eq!(energy_uj(POWER, 8, 8 * second, 8 * second, 0), 250_000);
        assert_eq!(energy_uj(POWER, 1, 0, 0, 7_000_000), 7);
    }

    #[test]
    fn running_never_costs_less_than_idling() {
        let mut last = 0;
        for i in 0..1000u64 {
            let now = i * 1_000_000_000;
            let e = energy_uj(POWER, 8, now, now / 3, i * 1_000_000);
            assert!(e >= last);
            last = e;
        }
    }

    #[test]
    fn huge_totals_do_not_wrap() {
        assert_eq!(
            energy_uj(POWER, 0, u64::MAX, u64::MAX, 0),
            4_611_686_018_427
        );
    }
}
