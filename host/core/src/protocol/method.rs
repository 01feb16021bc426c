//! The methods of the protocol.

use std::fmt;
use std::sync::Arc;

macro_rules! methods {
    ($($name:ident = $text:literal,)*) => {
        /// The method of a request or of a notification. Each method of the protocol is a variant, named as the method
        /// is written.
        #[derive(Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Method {
            $(#[doc = concat!("`", $text, "`")] $name,)*
            /// A method that no revision of the protocol has.
            Unknown(UnknownMethod),
        }

        impl Method {
            /// Returns the method as written in a message.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => $text,)*
                    Self::Unknown(UnknownMethod(text)) => text,
                }
            }
        }

        impl From<&str> for Method {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$name,)*
                    _ => Self::Unknown(UnknownMethod(text.into())),
                }
            }
        }

        #[cfg(test)]
        const ALL: &[Method] = &[$(Method::$name,)*];
    };
}

methods! {
    Initialize = "initialize",
    Ping = "ping",
    ServerDiscover = "server/discover",
    ToolsList = "tools/list",
    ToolsCall = "tools/call",
    PromptsList = "prompts/list",
    PromptsGet = "prompts/get",
    ResourcesList = "resources/list",
    ResourcesTemplatesList = "resources/templates/list",
    ResourcesRead = "resources/read",
    ResourcesSubscribe = "resources/subscribe",
    ResourcesUnsubscribe = "resources/unsubscribe",
    SubscriptionsListen = "subscriptions/listen",
    CompletionComplete = "completion/complete",
    LoggingSetLevel = "logging/setLevel",
    TasksList = "tasks/list",
    TasksGet = "tasks/get",
    TasksResult = "tasks/result",
    TasksUpdate = "tasks/update",
    TasksCancel = "tasks/cancel",
    SamplingCreateMessage = "sampling/createMessage",
    ElicitationCreate = "elicitation/create",
    RootsList = "roots/list",
    NotificationsInitialized = "notifications/initialized",
    NotificationsCancelled = "notifications/cancelled",
    NotificationsProgress = "notifications/progress",
    NotificationsMessage = "notifications/message",
    NotificationsToolsListChanged = "notifications/tools/list_changed",
    NotificationsPromptsListChanged = "notifications/prompts/list_changed",
    NotificationsResourcesListChanged = "notifications/resources/list_changed",
    NotificationsResourcesUpdated = "notifications/resources/updated",
    NotificationsRootsListChanged = "notifications/roots/list_changed",
    NotificationsSubscriptionsAcknowledged = "notifications/subscriptions/acknowledged",
    NotificationsElicitationComplete = "notifications/elicitation/complete",
    NotificationsTasks = "notifications/tasks",
    NotificationsTasksStatus = "notifications/tasks/status",
}

/// The text of a method that no revision of the protocol has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnknownMethod(Arc<str>);

/// The first parts of the protocol's own method names; in notifications they follow `notifications/`.
const RESERVED_PREFIXES: [&str; 17] = [
    "cancelled",
    "completion",
    "elicitation",
    "initialize",
    "initialized",
    "logging",
    "message",
    "ping",
    "progress",
    "prompts",
    "resources",
    "roots",
    "sampling",
    "server",
    "subscriptions",
    "tasks",
    "tools",
];

impl Method {
    /// Reports whether the method is one of the protocol's, has a name that the protocol reserves, or could be mistaken
    /// for such a name. A source may be lenient, so `Tools/call`, `tools//call`, `./tools/call` and `tools/call ` count
    /// as the method that they resemble. So does a name that holds anything but visible ASCII, which may imitate
    /// another, or `%` or `\`, which a source may decode.
    pub fn is_reserved(&self) -> bool {
        let Self::Unknown(UnknownMethod(text)) = self else { return true };
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'\\')) {
            return true;
        }
        let mut parts = text.split('/').skip_while(|part| part.eq_ignore_ascii_case("notifications"));
        let first = parts.next().unwrap_or_default();
        matches!(first, "" | "." | "..")
            || parts.any(|part| part == "..")
            || RESERVED_PREFIXES.iter().any(|own| own.eq_ignore_ascii_case(first))
    }

    /// Reports whether the method makes a source work. Requests about a task, a subscription or the log level do not.
    pub fn is_work(&self) -> bool {
        let is_light = matches!(
            self,
            Self::ResourcesSubscribe | Self::ResourcesUnsubscribe | Self::SubscriptionsListen | Self::LoggingSetLevel
        );
        !is_light && !self.is_of_tasks()
    }

    /// Reports whether the method is one of the protocol's that list something.
    pub fn is_list(&self) -> bool {
        matches!(
            self,
            Self::ToolsList
                | Self::PromptsList
                | Self::ResourcesList
                | Self::ResourcesTemplatesList
                | Self::TasksList
                | Self::RootsList
        )
    }

    /// Reports whether the notification says that a list has changed. So does one of a source's own whose name ends
    /// like those of the protocol.
    pub fn is_list_changed(&self) -> bool {
        match self {
            Self::NotificationsToolsListChanged
            | Self::NotificationsPromptsListChanged
            | Self::NotificationsResourcesListChanged
            | Self::NotificationsRootsListChanged => true,
            Self::Unknown(UnknownMethod(text)) => text.ends_with("/list_changed"),
            _ => false,
        }
    }

    /// Reports whether the method is a request about tasks.
    pub fn is_of_tasks(&self) -> bool {
        matches!(self, Self::TasksList | Self::TasksGet | Self::TasksResult | Self::TasksUpdate | Self::TasksCancel)
    }

    /// Reports whether a source may answer this method with a request for input; the caller then sends the request
    /// again with that input (2026-07-28, "Multi Round-Trip Requests").
    pub fn may_be_retried(&self) -> bool {
        matches!(self, Self::ToolsCall | Self::PromptsGet | Self::ResourcesRead)
    }

    /// Reports whether the parameters hold the caller's arguments in a member `arguments`.
    pub fn has_arguments(&self) -> bool {
        matches!(self, Self::ToolsCall | Self::PromptsGet)
    }

    /// Returns the member of the parameters that the header `Mcp-Name` repeats (2026-07-28, "Standard Request
    /// Headers").
    pub fn named_by(&self) -> Option<&'static str> {
        match self {
            Self::ToolsCall | Self::PromptsGet => Some("name"),
            Self::ResourcesRead | Self::ResourcesSubscribe | Self::ResourcesUnsubscribe => Some("uri"),
            Self::TasksGet | Self::TasksUpdate | Self::TasksCancel => Some("taskId"),
            _ => None,
        }
    }

    /// Reports whether a result of this method says how long it may be cached (2026-07-28, "Caching").
    pub fn is_cacheable(&self) -> bool {
        matches!(
            self,
            Self::ToolsList
                | Self::PromptsList
                | Self::ResourcesList
                | Self::ResourcesTemplatesList
                | Self::ResourcesRead
                | Self::ServerDiscover
        )
    }

    /// Reports whether the stateless revision (2026-07-28) has removed the method.
    pub fn is_removed_from_modern(&self) -> bool {
        matches!(
            self,
            Self::Initialize
                | Self::Ping
                | Self::LoggingSetLevel
                | Self::ResourcesSubscribe
                | Self::ResourcesUnsubscribe
                | Self::TasksList
                | Self::TasksResult
        )
    }

    /// Reports whether only the stateless revision (2026-07-28) has the method.
    pub fn is_modern_only(&self) -> bool {
        matches!(self, Self::ServerDiscover | Self::SubscriptionsListen)
    }

    /// Returns all members that `params` may have in any revision, for a method that has the caller's arguments in a
    /// member `arguments`. Any other member would reach the source without having passed the gate.
    pub fn known_members(&self) -> Option<&'static [&'static str]> {
        match self {
            Self::ToolsCall => Some(&["name", "arguments", "_meta", "task", "requestState", "inputResponses"]),
            Self::PromptsGet => Some(&["name", "arguments", "_meta", "requestState", "inputResponses"]),
            _ => None,
        }
    }

    /// Returns the members of `params` that describe what a source asks of the agent, for a request that sources make.
    pub fn asked_members(&self) -> &'static [&'static str] {
        match self {
            Self::ElicitationCreate => &["mode", "message", "requestedSchema", "url", "elicitationId"],
            Self::SamplingCreateMessage => &["messages", "systemPrompt", "includeContext", "tools", "toolChoice"],
            _ => &[],
        }
    }

    /// Returns the members of `params` that are the protocol's own, for a method without a member `arguments`. All
    /// other members count as arguments.
    pub(crate) fn protocol_members(&self) -> &'static [&'static str] {
        match self {
            Self::ResourcesRead => &["_meta", "uri", "requestState", "inputResponses"],
            Self::ResourcesSubscribe | Self::ResourcesUnsubscribe => &["_meta", "uri"],
            Self::CompletionComplete => &["_meta", "ref"],
            _ => &["_meta"],
        }
    }
}

impl From<String> for Method {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl AsRef<str> for Method {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq<Method> for &Method {
    fn eq(&self, other: &Method) -> bool {
        **self == *other
    }
}

impl PartialEq<str> for Method {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Method {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl serde::Serialize for Method {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_the_protocol_round_trips_and_is_reserved() {
        for method in ALL {
            assert_eq!(Method::from(method.as_str()), *method);
            assert!(method.is_reserved(), "{method}");
            let shouted = Method::from(method.as_str().to_ascii_uppercase());
            assert!(matches!(shouted, Method::Unknown(_)) && shouted.is_reserved(), "{shouted}");
        }
        assert_eq!(Method::from("vendor/do").as_str(), "vendor/do");
    }

    #[test]
    fn a_method_of_a_source_s_own_is_work_whatever_it_is_called() {
        for own in ["vendor/subscribe", "subscribe", "vendor/tasks", "logging2"] {
            assert!(Method::from(own).is_work(), "{own}");
        }
        for light in ["tasks/get", "resources/unsubscribe", "subscriptions/listen", "logging/setLevel"] {
            assert!(!Method::from(light).is_work(), "{light}");
        }
        assert!(Method::ToolsCall.is_work());
    }

    #[test]
    fn a_name_that_could_be_mistaken_for_a_method_of_the_protocol_is_reserved() {
        for own in [
            "Tools/Call",
            " tools /call",
            "notifications/tools/changed",
            "notifications/notifications/tools/call",
            "notifications",
            "notifications/",
            "",
            "tools//call",
            "//tools/call",
            "./tools/call",
            "vendor/../tools/call",
            "tools/call ",
            "tools/call\u{200b}",
            "tools%2fcall",
            "tools\\call",
            "t\u{3bf}ols/call",
        ] {
            assert!(Method::from(own).is_reserved(), "{own:?}");
        }
        for other in ["vendor/tools", "notifications/vendor", "toolsx/call", "x", "vendor.do", "$/vendor"] {
            assert!(!Method::from(other).is_reserved(), "{other}");
        }
    }
}
