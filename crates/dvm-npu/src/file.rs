//! The TOML form of a spec, apart from the in-memory types: what people write is a contract.

use std::collections::BTreeMap;

use dvm_bc::{Class, DType, DTypeSet, Exchange, Space, SpaceSpec, Target};
use serde::{Deserialize, Serialize};

use crate::Costs;
use crate::timing::Constants;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpecFile {
    pub(crate) name: String,
    pub(crate) target: TargetFile,
    pub(crate) costs: Costs,
    /// [`Constants`]; what is absent is derived from `costs`.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    timing: toml::Table,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TargetFile {
    cores: u32,
    block: u32,
    exchange: ExchangeFile,
    async_pipes: bool,
    events: u32,
    /// Cube cores that are separate from `cores`.
    #[serde(default)]
    cube_cores: u32,
    panel_mr: u32,
    /// Dtype size in bytes -> panel width.
    panel_nr: BTreeMap<String, u32>,
    spaces: SpacesFile,
    /// Class of instructions -> dtypes the machine has it for; a class that is absent takes every dtype.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    legal: BTreeMap<String, Vec<String>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ExchangeFile {
    Direct,
    Memory,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpacesFile {
    ub: u64,
    panel_a: u64,
    panel_b: u64,
    acc: u64,
}

impl SpecFile {
    /// The target, or the panel width whose key is no number.
    pub(crate) fn target(&self) -> Result<Target, String> {
        let t = &self.target;
        let mut panel_nr = Vec::new();
        for (size, nr) in &t.panel_nr {
            let size =
                size.parse().map_err(|_| format!("panel_nr: key `{size}` is not a dtype's size in bytes"))?;
            panel_nr.push((size, *nr));
        }
        let mut legal = Vec::new();
        for (class, dtypes) in &t.legal {
            let known = Class::from_name(class)
                .ok_or_else(|| format!("legal: `{class}` is no class of instructions"))?;
            let dtype =
                |d: &String| DType::from_name(d).ok_or_else(|| format!("legal.{class}: `{d}` is no dtype"));
            legal.push((known, dtypes.iter().map(dtype).collect::<Result<DTypeSet, String>>()?));
        }
        let s = &t.spaces;
        let spaces =
            [(Space::Ub, s.ub), (Space::PanelA, s.panel_a), (Space::PanelB, s.panel_b), (Space::Acc, s.acc)];
        Ok(Target {
            name: self.name.clone(),
            cores: t.cores,
            spaces: spaces.into_iter().map(|(space, bytes)| SpaceSpec { space, bytes }).collect(),
            block: t.block,
            panel_nr,
            panel_mr: t.panel_mr,
            exchange: match t.exchange {
                ExchangeFile::Direct => Exchange::Direct,
                ExchangeFile::Memory => Exchange::Memory,
            },
            async_pipes: t.async_pipes,
            events: t.events,
            cube_cores: t.cube_cores,
            legal,
        })
    }

    /// The timing model's constants.
    pub(crate) fn timing(&self, target: &Target) -> Result<Constants, toml::de::Error> {
        let derived = toml::Table::try_from(Constants::from_costs(&self.costs, target));
        let mut table = derived.unwrap_or_default();
        table.extend(self.timing.clone());
        serde::Deserialize::deserialize(toml::Value::Table(table))
    }

    pub(crate) fn of(target: &Target, costs: &Costs, timing: &Constants) -> SpecFile {
        let bytes = |s| target.capacity(s);
        SpecFile {
            name: target.name.clone(),
            target: TargetFile {
                cores: target.cores,
                block: target.block,
                exchange: match target.exchange {
                    Exchange::Direct => ExchangeFile::Direct,
                    Exchange::Memory => ExchangeFile::Memory,
                },
                async_pipes: target.async_pipes,
                events: target.events,
                cube_cores: target.cube_cores,
                legal: target
                    .legal
                    .iter()
                    .map(|l| (l.0.name().to_owned(), l.1.iter().map(|d| d.name().to_owned()).collect()))
                    .collect(),
                panel_mr: target.panel_mr,
                panel_nr: target.panel_nr.iter().map(|(s, n)| (s.to_string(), *n)).collect(),
                spaces: SpacesFile {
                    ub: bytes(Space::Ub),
                    panel_a: bytes(Space::PanelA),
                    panel_b: bytes(Space::PanelB),
                    acc: bytes(Space::Acc),
                },
            },
            costs: costs.clone(),
            timing: toml::Table::try_from(timing).unwrap_or_default(),
        }
    }
}
