//! Host and device on one clock: a launch starts when the host has enqueued it and the device has ended the one before.

/// What the host spends on launches, µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostCosts {
    /// Enqueuing one launch of a compiled program. Measured on 910B2 for an optimised launcher.
    pub enqueue_us: f64,
    /// Dispatching one op eagerly and enqueuing its kernel. Measured on 910B2 for an eager framework's `add`.
    pub eager_us: f64,
    /// Waiting for the device and reading a value back, beyond the device's own time. No figure is public for 910B2; launch and wait
    /// together take 19 to 31 µs on 910B3.
    pub read_us: f64,
}

impl Default for HostCosts {
    fn default() -> HostCosts {
        HostCosts { enqueue_us: 8.6, eager_us: 12.1, read_us: 12.0 }
    }
}

/// A launch to be scheduled, µs.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// For the timeline.
    pub name: String,
    /// Tiling and encoding.
    pub compile_us: f64,
    /// Host work to enqueue it.
    pub enqueue_us: f64,
    /// On the device.
    pub device_us: f64,
}

/// Something that takes time, µs from the start of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Busy {
    /// What.
    pub name: String,
    /// Begin.
    pub start_us: f64,
    /// End.
    pub end_us: f64,
}

/// Launches in time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// Until the last launch has ended.
    pub total_us: f64,
    /// The host's work in order.
    pub host: Vec<Busy>,
    /// The device's.
    pub device: Vec<Busy>,
    /// Compile time that made the end later.
    pub exposed_compile_us: f64,
}

/// Schedules launches that depend on each other in order. With `overlap` the host encodes a launch while earlier ones execute; without, it
/// encodes all before it enqueues the first.
#[must_use]
pub fn schedule(launches: &[Launch], overlap: bool) -> Schedule {
    let mut out = run(launches, overlap, 1.0);
    out.exposed_compile_us = out.total_us - run(launches, overlap, 0.0).total_us;
    out
}

fn run(launches: &[Launch], overlap: bool, compile: f64) -> Schedule {
    let mut out = Schedule::default();
    let (mut host, mut device) = (0.0f64, 0.0f64);
    let busy = |list: &mut Vec<Busy>, name: String, from: f64, us: f64| {
        if us > 0.0 {
            list.push(Busy { name, start_us: from, end_us: from + us });
        }
        from + us
    };
    if !overlap {
        for l in launches {
            host = busy(&mut out.host, format!("encode {}", l.name), host, l.compile_us * compile);
        }
    }
    for l in launches {
        if overlap {
            host = busy(&mut out.host, format!("encode {}", l.name), host, l.compile_us * compile);
        }
        host = busy(&mut out.host, format!("enqueue {}", l.name), host, l.enqueue_us);
        device = busy(&mut out.device, l.name.clone(), device.max(host), l.device_us);
    }
    out.total_us = device.max(host);
    out
}

/// Launches of the same kind repeated for ever: the time of one repetition, which the slower of host and device sets.
#[must_use]
pub fn steady_us(launches: &[Launch]) -> f64 {
    let host: f64 = launches.iter().map(|l| l.enqueue_us).sum();
    host.max(launches.iter().map(|l| l.device_us).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(compile_us: f64, enqueue_us: f64, device_us: f64) -> Launch {
        Launch { name: "l".into(), compile_us, enqueue_us, device_us }
    }

    #[test]
    fn host_and_device_overlap() {
        for (launches, overlap, total, exposed) in [
            (vec![], true, 0.0, 0.0),
            (vec![launch(10.0, 5.0, 100.0)], true, 115.0, 10.0),
            // The second compile hides behind the first launch.
            (vec![launch(10.0, 5.0, 100.0), launch(20.0, 5.0, 50.0)], true, 165.0, 10.0),
            (vec![launch(10.0, 5.0, 100.0), launch(20.0, 5.0, 50.0)], false, 185.0, 30.0),
            // A device that waits for the host.
            (vec![launch(0.0, 12.0, 2.0), launch(0.0, 12.0, 2.0)], true, 26.0, 0.0),
            (vec![launch(10.0, 5.0, 1.0), launch(20.0, 5.0, 1.0)], true, 41.0, 30.0),
        ] {
            let s = schedule(&launches, overlap);
            assert_eq!((s.total_us, s.exposed_compile_us), (total, exposed), "{launches:?}");
            let ordered = |list: &[Busy]| list.windows(2).all(|w| w[0].end_us <= w[1].start_us);
            assert!(ordered(&s.host) && ordered(&s.device));
        }
        assert_eq!(steady_us(&[launch(9.0, 12.0, 2.0), launch(0.0, 12.0, 30.0)]), 32.0);
    }
}
