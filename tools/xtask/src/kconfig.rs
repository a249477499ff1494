// SPDX-License-Identifier: GPL-2.0

//! Kernel configuration: fragments of `tools/configs`, and the check that they hold.

use crate::{kernel::Variant, util};
use anyhow::{bail, Result};
use std::{collections::BTreeMap, path::Path};

/// Wanted options: name without `CONFIG_` to value, `None` for "is not set".
#[derive(Default, PartialEq, Debug)]
pub(crate) struct Fragment(BTreeMap<String, Option<String>>);

impl Fragment {
    /// Merges the fragments of `variant`; later ones overrule earlier ones.
    pub(crate) fn load(dir: &Path, variant: Variant) -> Result<Self> {
        let Variant {
            arch,
            implementation,
            profile,
        } = variant;
        let mut merged = Self::default();
        for name in [
            "common".to_owned(),
            arch.name().to_owned(),
            format!("impl-{}", implementation.name()),
            profile.name().to_owned(),
            format!("{}-{}", arch.name(), profile.name()),
            // What only this combination has, such as the tests inside the Rust code.
            format!("{}-{}", profile.name(), implementation.name()),
        ] {
            let path = dir.join(name).with_extension("config");
            if path.exists() {
                merged.add(&util::read(&path)?);
            }
        }
        Ok(merged)
    }

    fn add(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((name, value)) = parse(line) {
                self.0.insert(name.to_owned(), value.map(str::to_owned));
            }
        }
    }

    /// As text for `KCONFIG_ALLCONFIG`.
    pub(crate) fn text(&self) -> String {
        let lines = self.0.iter().map(|(name, value)| match value {
            Some(value) => format!("CONFIG_{name}={value}\n"),
            None => format!("# CONFIG_{name} is not set\n"),
        });
        lines.collect()
    }

    /// Fails, naming each, if the finished `config` lacks options that were asked for.
    pub(crate) fn verify(&self, config: &str) -> Result<()> {
        let mut actual = Self::default();
        actual.add(config);
        let mut wrong = Vec::new();
        for (name, wanted) in &self.0 {
            let got = actual.0.get(name).and_then(Option::as_deref);
            if got != wanted.as_deref() {
                let wanted = wanted.as_deref().unwrap_or("n");
                wrong.push(format!(
                    "CONFIG_{name} (wanted {wanted}, got {})",
                    got.unwrap_or("n")
                ));
            }
        }
        if !wrong.is_empty() {
            bail!(
                "the kernel configuration does not hold: {}; a dependency is missing in \
                 tools/configs",
                wrong.join(", ")
            );
        }
        Ok(())
    }
}

/// Parses a line of a configuration; comments and blank lines give `None`.
fn parse(line: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = line.strip_prefix("# CONFIG_") {
        return Some((rest.strip_suffix(" is not set")?, None));
    }
    let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
    Some((name, (value != "n").then_some(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(text: &str) -> Fragment {
        let mut fragment = Fragment::default();
        fragment.add(text);
        fragment
    }

    #[test]
    fn later_lines_win() {
        let merged =
            fragment("CONFIG_A=y\n# text\nCONFIG_B=y\n# CONFIG_A is not set\nCONFIG_C=n\n");
        assert_eq!(
            merged.text(),
            "# CONFIG_A is not set\nCONFIG_B=y\n# CONFIG_C is not set\n"
        );
    }

    #[test]
    fn verification_names_what_is_wrong() {
        let wanted = fragment("CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_S=\"x\"\n");
        assert!(wanted
            .verify("CONFIG_A=y\nCONFIG_S=\"x\"\nCONFIG_OTHER=y\n")
            .is_ok());
        assert!(wanted
            .verify("CONFIG_A=y\nCONFIG_S=\"x\"\n# CONFIG_B is not set\n")
            .is_ok());
        let error = wanted.verify("CONFIG_AA=y\nCONFIG_B=m\nCONFIG_S=\"x\"\n");
        let text = error.expect_err("A is missing and B is set").to_string();
        assert!(text.contains("CONFIG_A (wanted y, got n)"), "{text}");
        assert!(text.contains("CONFIG_B (wanted n, got m)"), "{text}");
        assert!(!text.contains("CONFIG_S"), "{text}");
    }
}
