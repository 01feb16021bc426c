//! The resources whose changes an agent is told about: those whose subscription the gate and the source have allowed.
//! Announcements about other resources do not reach the agent.

use std::collections::HashMap;

use serde_json::json;

use crate::protocol::{Json, Method, Notification};
use crate::sync::Mutex;

/// The largest number of resources that one agent, or one of its streams, can watch. Each is a call at its source.
pub(super) const MAX_WATCHED: usize = 1024;

/// The resources that one agent or one of its streams watches, by their exposed URIs.
#[derive(Debug, Default)]
pub(super) struct WatchedResources(Mutex<HashMap<String, Subscription>>);

#[derive(Debug)]
enum Subscription {
    /// The gate or the source has not answered yet. `changed` is true if a change came meanwhile: a source may announce
    /// one before its answer has passed the gate.
    Pending {
        changed: bool,
    },
    Taken,
}

impl WatchedResources {
    /// Notes that the agent asks to watch a resource. Returns false if it watches too many.
    pub(super) fn begin(&self, uri: &str) -> bool {
        let mut all = self.0.lock();
        let has_room = all.len() < MAX_WATCHED || all.contains_key(uri);
        if has_room {
            all.entry(uri.to_owned()).or_insert(Subscription::Pending { changed: false });
        }
        has_room
    }

    /// Notes that the agent watches a resource whose subscription has passed the gate already.
    pub(super) fn add(&self, uri: &str) {
        self.0.lock().insert(uri.to_owned(), Subscription::Taken);
    }

    /// Notes whether a subscription was taken. Returns a notification for the agent if the resource changed before. One
    /// that was taken before stays so, whatever becomes of a second request for it.
    pub(super) fn settle(&self, uri: &str, is_taken: bool) -> Option<Notification> {
        let mut all = self.0.lock();
        if !is_taken {
            if matches!(all.get(uri), Some(Subscription::Pending { .. })) {
                all.remove(uri);
            }
            return None;
        }
        let before = all.insert(uri.to_owned(), Subscription::Taken);
        matches!(before, Some(Subscription::Pending { changed: true })).then(|| Notification {
            method: Method::NotificationsResourcesUpdated.to_owned(),
            params: Some(Json::of(&json!({ "uri": uri }))),
        })
    }

    /// Notes that the agent watches a resource no more.
    pub(super) fn remove(&self, uri: &str) {
        self.0.lock().remove(uri);
    }

    /// Forgets all resources.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Makes all subscriptions pending again, and returns their URIs. `has_changed` says which of the resources may have
    /// changed by then.
    pub(super) fn suspend(&self, has_changed: impl Fn(&str) -> bool) -> Vec<String> {
        let mut all = self.0.lock();
        for (uri, subscription) in &mut *all {
            let earlier = matches!(subscription, Subscription::Pending { changed: true });
            *subscription = Subscription::Pending { changed: earlier || has_changed(uri) };
        }
        all.keys().cloned().collect()
    }

    /// Returns the URIs of the resources whose subscriptions were not refused, in order.
    pub(super) fn uris(&self) -> Vec<String> {
        let mut uris: Vec<_> = self.0.lock().keys().cloned().collect();
        uris.sort_unstable();
        uris
    }

    /// Reports whether the agent may be notified of this change to a resource that it watches, or of a part of one: a
    /// source may announce a change of a sub-resource (2025-11-25, "Resources"). A change to a resource whose
    /// subscription is pending is announced later.
    pub(super) fn admits(&self, change: &Notification) -> bool {
        let Some(uri) = change.params.as_ref().and_then(|params| params.get_str("uri")) else { return false };
        let mut all = self.0.lock();
        let about = |watched: &str| watched == uri || is_part(&uri, watched);
        let mut subscriptions: Vec<_> =
            all.iter_mut().filter(|(watched, _)| about(watched)).map(|(_, subscription)| subscription).collect();
        if subscriptions.iter().any(|subscription| matches!(subscription, Subscription::Taken)) {
            return true;
        }
        for subscription in &mut subscriptions {
            **subscription = Subscription::Pending { changed: true };
        }
        false
    }
}

/// Reports whether a notification is about a change of one resource.
pub(super) fn is_update(notification: &Notification) -> bool {
    notification.method == Method::NotificationsResourcesUpdated
}

/// Reports whether a URI names a part of what another one names.
fn is_part(uri: &str, whole: &str) -> bool {
    let rest = uri.strip_prefix(whole);
    rest.is_some_and(|rest| whole.ends_with('/') || rest.starts_with(['/', '?', '#']))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn change(uri: &str) -> Notification {
        Notification {
            method: Method::NotificationsResourcesUpdated.to_owned(),
            params: Some(Json::of(&json!({ "uri": uri }))),
        }
    }

    #[test]
    fn a_change_is_told_once_its_subscription_is_taken_and_not_if_it_is_refused() {
        let watched = WatchedResources::default();
        assert!(watched.begin("a:b") && watched.begin("a:c"));
        assert!(!watched.admits(&change("a:b")) && !watched.admits(&change("a:c")));
        let kept = watched.settle("a:b", true).unwrap();
        assert_eq!(kept.params.unwrap().get_str("uri").unwrap(), "a:b");
        assert!(watched.settle("a:c", false).is_none());
        assert!(watched.admits(&change("a:b")) && !watched.admits(&change("a:c")));
        assert!(watched.begin("a:b") && watched.admits(&change("a:b")), "a second request takes nothing away");
        assert!(watched.settle("a:b", false).is_none() && watched.admits(&change("a:b")), "nor if it is refused");
        watched.remove("a:b");
        assert!(!watched.admits(&change("a:b")));
    }

    #[test]
    fn a_change_that_comes_while_subscriptions_are_made_again_is_told() {
        let watched = WatchedResources::default();
        ["a:b", "a:c", "a:d"].iter().for_each(|uri| watched.add(uri));
        let mut uris = watched.suspend(|uri| uri == "a:d");
        uris.sort_unstable();
        assert_eq!(uris, ["a:b", "a:c", "a:d"]);
        assert!(!watched.admits(&change("a:b")), "it may be refused now");
        assert_eq!(watched.suspend(|_| false).len(), 3, "again, before any of them is made");
        let told = ["a:b", "a:c", "a:d"].map(|uri| watched.settle(uri, true).is_some());
        assert_eq!(told, [true, false, true], "one that was not heard meanwhile counts as changed");
        assert!(watched.admits(&change("a:c")));
    }

    #[test]
    fn a_part_of_a_watched_resource_counts_and_a_neighbour_does_not() {
        let watched = WatchedResources::default();
        watched.add("file:///a");
        for (uri, is_told) in
            [("file:///a/b", true), ("file:///a#l1", true), ("file:///ab", false), ("file:///", false)]
        {
            assert_eq!(watched.admits(&change(uri)), is_told, "{uri}");
        }
    }

    #[test]
    fn a_change_is_told_if_one_subscription_that_it_concerns_is_taken() {
        let watched = WatchedResources::default();
        watched.add("file:///a");
        assert!(watched.begin("file:///a/b") && watched.begin("file:///a/b/c"));
        for uri in ["file:///a/b/c/d", "file:///a/b/c", "file:///a/b"] {
            assert!(watched.admits(&change(uri)), "{uri}");
        }
    }

    #[test]
    fn an_agent_watches_a_bounded_number_of_resources() {
        let watched = WatchedResources::default();
        assert!((0..MAX_WATCHED).all(|number| watched.begin(&number.to_string())));
        assert!(!watched.begin("one more") && watched.begin("7"));
    }
}
