//! The clients that are known, and the files in which each keeps its servers.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::ValueEnum as _;
use portcullis::config::{environment_variable, no_home, user_config_dir};

/// An MCP client with its own file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Client {
    ClaudeCode,
    ClaudeDesktop,
    Cursor,
    Vscode,
    Codex,
    Gemini,
    Zed,
    Windsurf,
    Goose,
}

/// The language in which a client's file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSyntax {
    /// JSON, with comments and trailing commas where the client allows them.
    Json,
    Toml,
    /// Read, but not edited: no kept library changes it and keeps its comments.
    Yaml,
}

/// The variables by which a user moves a client's file, the first first, each with the path of the file below the
/// folder that the variable names. `XDG_CONFIG_HOME` counts in addition for all clients that keep their file in
/// `~/.config`.
const MOVED_BY: [(Client, &str, &str); 6] = [
    (Client::ClaudeCode, "CLAUDE_CONFIG_DIR", ".claude.json"),
    (Client::Codex, "CODEX_HOME", "config.toml"),
    (Client::Gemini, "GEMINI_CLI_HOME", ".gemini/settings.json"),
    (Client::Goose, "GOOSE_PATH_ROOT", "config/config.yaml"),
    (Client::Vscode, "VSCODE_PORTABLE", "user-data/User/mcp.json"),
    (Client::Vscode, "VSCODE_APPDATA", "Code/User/mcp.json"),
];

impl Client {
    /// Returns the name that the command line uses.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns the client of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|client| client.name() == name)
    }

    /// Returns the file with the servers of the user, where the environment of this command says that the client has
    /// it.
    ///
    /// # Errors
    /// If the user has no home folder, or a variable names a folder by a relative path.
    pub(crate) fn user_file(self) -> anyhow::Result<PathBuf> {
        for (_, variable, file) in MOVED_BY.into_iter().filter(|(client, ..)| *client == self) {
            let Some(folder) = environment_variable(variable).filter(|folder| !folder.is_empty()) else { continue };
            ensure!(
                Path::new(&folder).is_absolute(),
                "{variable} is {folder:?} here, which is not an absolute path, so where {} keeps its servers depends on the folder in which \
                 it starts: set {variable} to an absolute path, or unset it",
                self.name()
            );
            return Ok(Path::new(&folder).join(file));
        }
        let home = std::env::home_dir().filter(|home| home.is_absolute()).with_context(|| {
            format!("{}, so it is not known where {} keeps its servers: set HOME", no_home(), self.name())
        })?;
        let own = user_config_dir();
        let config = own.as_deref().and_then(Path::parent).map_or_else(|| home.join(".config"), Path::to_owned);
        // Where desktop programs of macOS keep their settings.
        let desktop = if cfg!(target_os = "macos") { home.join("Library/Application Support") } else { config.clone() };
        Ok(match self {
            Self::ClaudeCode => home.join(".claude.json"),
            Self::ClaudeDesktop => desktop.join("Claude/claude_desktop_config.json"),
            Self::Cursor => home.join(".cursor/mcp.json"),
            Self::Vscode => desktop.join("Code/User/mcp.json"),
            Self::Codex => home.join(".codex/config.toml"),
            Self::Gemini => home.join(".gemini/settings.json"),
            Self::Zed => config.join("zed/settings.json"),
            Self::Windsurf => home.join(".codeium/windsurf/mcp_config.json"),
            Self::Goose => config.join("goose/config.yaml"),
        })
    }

    /// Returns the file with the servers of the project in this folder, if the client has one.
    pub(crate) fn project_file(self, folder: &Path) -> Option<PathBuf> {
        let file = match self {
            Self::ClaudeCode => ".mcp.json",
            Self::Cursor => ".cursor/mcp.json",
            Self::Vscode => ".vscode/mcp.json",
            Self::Codex => ".codex/config.toml",
            Self::Gemini => ".gemini/settings.json",
            Self::Zed => ".zed/settings.json",
            Self::ClaudeDesktop | Self::Windsurf | Self::Goose => return None,
        };
        Some(folder.join(file))
    }

    /// Returns the files in which the client may keep servers of the user, whether they exist or not.
    pub(crate) fn user_files(self) -> anyhow::Result<Vec<PathBuf>> {
        let own = self.user_file()?;
        // Where its servers were before mid-2025.
        let older = (self == Self::Vscode).then(|| own.with_file_name("settings.json"));
        Ok(std::iter::once(own).chain(older).collect())
    }

    /// Returns all files in which the client may keep servers, for the user and then for the project in this folder,
    /// whether they exist or not.
    pub(crate) fn files(self, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let mut files = self.user_files()?;
        if self == Self::Vscode {
            files.push(folder.join(".vscode/settings.json"));
        }
        files.extend(self.project_file(folder));
        Ok(files)
    }

    /// Returns the key under which the servers are.
    pub(crate) fn servers_key(self) -> &'static str {
        match self {
            Self::Vscode => "servers",
            Self::Codex => "mcp_servers",
            Self::Zed => "context_servers",
            Self::Goose => "extensions",
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor | Self::Gemini | Self::Windsurf => "mcpServers",
        }
    }

    pub(crate) fn syntax(self) -> FileSyntax {
        match self {
            Self::Codex => FileSyntax::Toml,
            Self::Goose => FileSyntax::Yaml,
            _ => FileSyntax::Json,
        }
    }
}
