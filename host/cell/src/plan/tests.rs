#![allow(clippy::unwrap_used, reason = "tests")]
use portcullis_jail::CellRefusal;

use super::*;
use crate::{ProgramSearch, Strength};

const ENFORCED: EnforcementReport = EnforcementReport { landlock: 7, cgroup: false, protects_names: true, user: 1000 };

fn refusal(step: &str) -> CellRefusal {
    CellRefusal { step: step.to_owned(), cause: "EPERM".to_owned(), errno: Some(1), setting: None, remedy: None }
}

fn machine_with(full: bool, bwrap: bool, reduced: bool) -> AvailableTiers {
    let built = |good: bool, step: &str| if good { Ok(ENFORCED) } else { Err(refusal(step)) };
    AvailableTiers::new(Ok(ProbeReport {
        full: built(full, "user namespace"),
        bwrap: built(bwrap, "bwrap"),
        reduced: built(reduced, "landlock"),
    }))
}

fn needs(read: &[&str]) -> ProgramNeeds {
    let programs = ProgramSearch { search: "/usr/bin:/bin".into(), home: None, own: Vec::new() };
    let mut needs = ProgramNeeds::of(&["sh".to_owned()], None, None, &programs).unwrap();
    needs.read.extend(read.iter().map(PathBuf::from));
    needs
}

fn plan(grant: &CellGrant, needs: &ProgramNeeds, tier: Tier) -> Plan {
    Plan::new(grant, needs, &[], &[], setting(tier))
}

fn setting(tier: Tier) -> PlanContext<'static> {
    PlanContext {
        tier,
        enforced: &ENFORCED,
        outside_home: Path::new("/data/home"),
        proxy_listeners: Vec::new(),
        recorded: false,
    }
}

fn access(plan: &Plan, path: &str) -> Option<MountAccess> {
    plan.launch.cell.mounts.iter().find(|mount| mount.path == Path::new(path)).map(|mount| mount.access)
}

#[test]
fn a_granted_file_of_the_machine_takes_the_place_of_the_cells_own() {
    let files = |read: &[&str]| {
        let plan = plan(&CellGrant::nothing(), &needs(read), Tier::Full);
        plan.launch.cell.files.into_iter().map(|(path, _)| path).collect::<Vec<_>>()
    };
    let (hosts, passwd) = (Path::new("/etc/hosts").to_owned(), Path::new("/etc/passwd").to_owned());
    assert!(files(&[]).contains(&hosts) && files(&["/etc/hosts.d"]).contains(&hosts));
    assert!(!files(&["/etc/hosts"]).contains(&hosts) && files(&["/etc/hosts"]).contains(&passwd));
    assert_eq!(files(&["/etc"]), Vec::<PathBuf>::new());
}

#[test]
fn nothing_is_downgraded_in_silence() {
    let mut grant = CellGrant::nothing();
    let tier = |tiers: AvailableTiers, grant: &CellGrant| tiers.tier_for(grant).map(|(tier, _)| tier);
    assert_eq!(tier(machine_with(true, false, false), &grant), Ok(Tier::Full));
    assert_eq!(tier(machine_with(false, true, false), &grant), Ok(Tier::FullViaBwrap));
    let why = tier(machine_with(false, false, true), &grant).unwrap_err().to_string();
    assert!(why.contains("`user namespace` failed") && why.contains("dangerous-allow-reduced"), "{why}");
    grant.dangerous_allow_reduced = true;
    assert_eq!(tier(machine_with(false, false, true), &grant), Ok(Tier::Reduced));
    assert!(tier(machine_with(false, false, false), &grant).is_err());
    grant.network = vec!["a.example:443".to_owned()];
    let why = tier(machine_with(false, false, true), &grant).unwrap_err().to_string();
    assert!(why.contains("remove `network`"), "{why}");
}

#[test]
fn a_cell_holds_the_system_the_program_and_the_grant_and_nothing_else() {
    let mut grant = CellGrant::nothing();
    grant.read = vec!["/srv/docs".into()];
    grant.write = vec!["/srv/tool/cache".into()];
    let plan = plan(&grant, &needs(&["/srv/tool", "/srv/tool/bin/tool", "/srv/docs/venv"]), Tier::Full);
    assert_eq!(access(&plan, "/srv/docs"), Some(MountAccess::Read));
    assert_eq!(access(&plan, "/srv/tool"), Some(MountAccess::Read));
    assert_eq!(access(&plan, "/srv/tool/cache"), Some(MountAccess::Write), "a grant within what the program needs");
    assert_eq!((access(&plan, "/srv/tool/bin/tool"), access(&plan, "/srv/docs/venv")), (None, None), "twice is once");
    let others = plan.launch.cell.mounts.iter().filter(|mount| !mount.path.starts_with("/srv"));
    assert!(
        others.clone().all(|mount| mount.access == MountAccess::Public && system_mounts::is_shared(&mount.path)),
        "{others:?}"
    );
    assert_eq!(plan.launch.cell.network, Network::Listeners(Vec::new()), "nothing but what the broker serves");
    assert_eq!(plan.launch.directory, Path::new(HOME));
}

#[test]
fn a_configuration_in_a_folder_that_may_be_written_is_mounted_to_be_read() {
    let mut grant = CellGrant::nothing();
    grant.write = vec!["/srv/work".into()];
    grant.protected = vec!["/srv/work/.portcullis".into(), "/srv/work/portcullis.toml".into()];
    let plan = plan(&grant, &needs(&[]), Tier::Full);
    assert_eq!(access(&plan, "/srv/work"), Some(MountAccess::Write));
    for protected in ["/srv/work/.portcullis", "/srv/work/portcullis.toml"] {
        assert_eq!(access(&plan, protected), Some(MountAccess::Read), "{protected}");
    }
}

#[test]
fn a_data_folder_in_what_is_granted_is_hidden_and_nothing_in_it_is_mounted() {
    let mut grant = CellGrant::nothing();
    (grant.read, grant.write) = (vec!["/srv/code".into()], vec!["/srv/work".into()]);
    grant.protected = ["/srv/work/.portcullis", "/srv/work/portcullis.toml"].map(PathBuf::from).into();
    grant.hidden =
        ["/srv/code/repo/.portcullis", "/srv/tool/.portcullis", "/srv/work/.portcullis"].map(PathBuf::from).into();
    let plan = plan(&grant, &needs(&["/srv/tool", "/srv/tool/.portcullis/lib"]), Tier::Full);
    assert_eq!(plan.launch.cell.hidden, grant.hidden);
    for mounted in ["/srv/code", "/srv/tool", "/srv/work/portcullis.toml"] {
        assert_eq!(access(&plan, mounted), Some(MountAccess::Read), "{mounted}");
    }
    for hidden in ["/srv/work/.portcullis", "/srv/tool/.portcullis/lib"] {
        assert_eq!(access(&plan, hidden), None, "{hidden}");
    }
}

#[test]
fn a_reduced_cell_is_given_no_folder_with_a_configuration_in_it() {
    let mut grant = CellGrant::nothing();
    (grant.write, grant.dangerous_allow_reduced) = (vec!["/srv/work".into()], true);
    let reduced = machine_with(false, false, true);
    assert_eq!(reduced.tier_for(&grant).map(|(tier, _)| tier), Ok(Tier::Reduced));
    grant.protected = vec!["/srv/work/sub/portcullis.toml".into()];
    let why = reduced.tier_for(&grant).unwrap_err().to_string();
    let parts = ["`write` names /srv/work,", "holds /srv/work/sub/portcullis.toml", "smaller folders", "a full cell"];
    assert!(parts.iter().all(|part| why.contains(part)), "{why}");
    assert_eq!(machine_with(true, false, true).tier_for(&grant).map(|(tier, _)| tier), Ok(Tier::Full));
}

#[test]
fn the_environment_is_four_variables_of_the_broker_and_the_configured_ones() {
    let listed = [("KEY".to_owned(), "value".to_owned()), ("LANG".to_owned(), "fr_FR".to_owned())];
    let grant = CellGrant::nothing();
    let plan = Plan::new(&grant, &needs(&[]), &[], &listed, setting(Tier::Full));
    let mut names: Vec<_> =
        plan.launch.environment.iter().map(|(name, value)| format!("{name}={}", value.display())).collect();
    names.sort();
    let path = "PATH=/usr/bin:/usr/local/bin:/bin";
    assert_eq!(names, ["HOME=/home/source", "KEY=value", "LANG=fr_FR", path, "TMPDIR=/tmp"]);
}

#[test]
fn python_hashes_alike_at_each_start_unless_it_is_configured_otherwise() {
    let seed = |runtime: Runtime, listed: &[(String, String)]| {
        let mut needs = needs(&[]);
        needs.runtime = runtime;
        let plan = Plan::new(&CellGrant::nothing(), &needs, &[], listed, setting(Tier::Full));
        let found = plan.launch.environment.iter().find(|(name, _)| name == "PYTHONHASHSEED");
        found.map(|(_, value)| value.display().to_string())
    };
    assert_eq!(seed(Runtime::Python, &[]).as_deref(), Some("0"));
    assert_eq!(seed(Runtime::Node, &[]), None);
    let random = [("PYTHONHASHSEED".to_owned(), "random".to_owned())];
    assert_eq!(seed(Runtime::Python, &random).as_deref(), Some("random"));
}

#[test]
fn a_link_that_a_mount_brings_along_is_not_made_again() {
    let mut needs = needs(&["/srv/tool"]);
    needs.links.insert("/srv/tool/bin/python".into(), "python3".into());
    needs.links.insert("/srv/current".into(), "/srv/tool".into());
    let plan = plan(&CellGrant::nothing(), &needs, Tier::Full);
    let links: Vec<_> = plan.launch.cell.links.iter().filter(|(link, _)| link.starts_with("/srv")).collect();
    assert_eq!(links, [&(PathBuf::from("/srv/current"), PathBuf::from("/srv/tool"))]);
}

#[test]
fn a_reduced_cell_has_the_machines_own_root_and_says_so() {
    let plan = plan(&CellGrant::nothing(), &needs(&[]), Tier::Reduced);
    assert_eq!(plan.launch.cell.home, Path::new("/data/home"));
    assert!(plan.launch.cell.links.is_empty() && plan.launch.cell.files.is_empty());
    assert_eq!(plan.launch.cell.network, Network::None);
    let kill = plan.report.aspects.iter().find(|aspect| aspect.subject == "kill-tree").unwrap();
    assert_eq!(kill.strength, Strength::BestEffort);
}
