//! What a session may be told.

use dvm_npu::MachineSpec;
use dvm_tile::TileHint;

use crate::Error;
#[cfg(doc)]
use crate::Module;

/// Options of a [`crate::Session`]. The default uses every core and the machine at hand.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Worker threads, the caller included; `None` is what the system reports as available.
    pub threads: Option<usize>,
    /// Machine to compile for; `None` is the machine at hand. Programs for any machine run on the host's cores.
    pub spec: Option<MachineSpec>,
    /// Encoded programs kept, by shape. At least 1.
    pub cache: usize,
    /// Most bytes of workspace, inputs and outputs of a run. Where data decide shapes or iterations, the largest value means
    /// 4 GiB.
    pub max_bytes: u64,
    /// Most time a launch may take (with loops: a run); checked between runs of tiles and before iterations.
    pub timeout: Option<std::time::Duration>,
    /// Most instructions, all tiles counted, that a launch of a bundle may execute.
    pub max_tile_instructions: u64,
    /// Most iterations of all loops of a run.
    pub max_iterations: u64,
    /// Fuse ops to kernels. Off, each op is a kernel of its own; so it is where [`Options::from_env`] finds `DVM_FUSE=off`.
    pub fuse: bool,
    /// Conditions on dims that hold for every input, see [`Module::assuming`].
    pub assume: Vec<String>,
    /// Count the bytes that loads and stores move, for [`crate::RunReport`]. Costs some time.
    pub traffic: bool,
    /// Verify and hazard-check what is compiled and panic on a defect. On in builds with debug assertions or the feature
    /// `checked`.
    pub check: bool,
    /// Tilings that are asked for instead of what the cost model finds. Values do not depend on them.
    pub tiles: Vec<TileHint>,
    /// Let a stream encode its next program while the last one runs. The values are the same either way.
    pub overlap: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: None,
            spec: None,
            cache: 64,
            max_bytes: u64::MAX,
            timeout: None,
            max_tile_instructions: 1 << 32,
            max_iterations: 1 << 24,
            fuse: true,
            assume: vec![],
            traffic: false,
            check: dvm_tile::CHECKS,
            tiles: vec![],
            overlap: true,
        }
    }
}

impl Options {
    /// The default, changed by the environment: `DVM_FUSE=off` runs every op as a kernel of its own. Nothing else in this crate
    /// reads the environment.
    ///
    /// # Errors
    /// A value that is neither `on` nor `off`.
    pub fn from_env() -> Result<Options, Error> {
        let fuse = match std::env::var("DVM_FUSE") {
            Err(std::env::VarError::NotPresent) => true,
            Ok(v) if v == "on" => true,
            Ok(v) if v == "off" => false,
            Ok(v) => return Err(Error::Environment { variable: "DVM_FUSE", value: v, allowed: "on, off" }),
            Err(e) => {
                return Err(Error::Environment {
                    variable: "DVM_FUSE",
                    value: e.to_string(),
                    allowed: "on, off",
                });
            }
        };
        Ok(Options { fuse, ..Options::default() })
    }
    /// The number of threads these options ask for.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
    }
    /// The machine these options ask for.
    #[must_use]
    pub fn machine(&self) -> MachineSpec {
        self.spec.clone().unwrap_or_else(|| MachineSpec::detect(self.thread_count() as u32))
    }
}
