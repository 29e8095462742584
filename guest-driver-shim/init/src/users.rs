//! The user as which a program runs: numbers, or names that its root file system knows.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// File of a root file system with its users (passwd(5)).
pub const USERS: &str = "/etc/passwd";
/// File of a root file system with its groups (group(5)).
pub const GROUPS: &str = "/etc/group";

/// A user, and a group after a colon, each by number or by name.
///
/// The group may be left out. A named user then gets the groups that the root file system lists for
/// it. A user by number gets the group of the same number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    user: Id,
    group: Option<Id>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Id {
    Number(u32),
    Name(String),
}

/// The text is not a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write USER or USER:GROUP: names, or numbers below 4294967295")]
pub struct UserError;

/// The root file system does not know a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the root file system has no {what} {name} in {file}: give one that it has, or a number")]
pub struct NameError {
    what: &'static str,
    name: String,
    file: &'static str,
}

/// What a process of a user is, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub user: u32,
    /// Its first group.
    pub group: u32,
    /// The other groups that it is a member of.
    pub others: Vec<u32>,
    /// Its folder, if the root file system names one.
    pub home: Option<PathBuf>,
}

impl FromStr for Id {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        let is_odd = |letter: char| letter == ':' || letter.is_whitespace() || letter.is_control();
        match text.parse() {
            // All bits set means "leave it as it is" to the kernel.
            Ok(number) if number != u32::MAX => Ok(Self::Number(number)),
            Err(_) if text.starts_with(|first: char| first.is_alphabetic() || first == '_') => {
                match text.contains(is_odd) {
                    false => Ok(Self::Name(text.to_owned())),
                    true => Err(UserError),
                }
            }
            _ => Err(UserError),
        }
    }
}

impl FromStr for User {
    type Err = UserError;

    fn from_str(text: &str) -> Result<Self, UserError> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group.parse()?)),
            None => (text, None),
        };
        let user = user.parse()?;
        Ok(Self { user, group })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.user.fmt(f)?;
        self.group
            .iter()
            .try_for_each(|group| write!(f, ":{group}"))
    }
}

impl User {
    /// Looks its names up in the contents of [`USERS`] and [`GROUPS`]. Lines that are none of these
    /// files are passed over.
    ///
    /// # Errors
    /// [`NameError`] for a name that is not there.
    pub fn look_up(&self, users: &[u8], groups: &[u8]) -> Result<Identity, NameError> {
        let mut identity = match &self.user {
            Id::Number(number) => Identity {
                user: *number,
                group: *number,
                others: Vec::new(),
                home: None,
            },
            Id::Name(name) => named_user(name, users, groups)?,
        };
        if let Some(group) = &self.group {
            identity.group = group_number(group, groups)?;
            identity.others.clear();
        }
        Ok(identity)
    }
}

/// Returns the lines of a file, each in its fields.
fn lines(file: &[u8]) -> impl Iterator<Item = Vec<&str>> {
    let lines = file.split(|byte| *byte == b'\n');
    lines.filter_map(|line| Some(std::str::from_utf8(line).ok()?.split(':').collect()))
}

fn named_user(name: &str, users: &[u8], groups: &[u8]) -> Result<Identity, NameError> {
    // NAME:PASSWORD:UID:GID:COMMENT:HOME:SHELL
    let found = lines(users).find_map(|fields| match fields[..] {
        [found, _, user, group, _, home, ..] if found == name => Some(Identity {
            user: user.parse().ok()?,
            group: group.parse().ok()?,
            others: Vec::new(),
            home: (!home.is_empty()).then(|| home.into()),
        }),
        _ => None,
    });
    let mut identity = found.ok_or_else(|| NameError {
        what: "user",
        name: name.to_owned(),
        file: USERS,
    })?;
    // NAME:PASSWORD:GID:MEMBER,MEMBER
    let others = lines(groups).filter_map(|fields| match fields[..] {
        [_, _, group, members, ..] => {
            let is_member = members.split(',').any(|member| member == name);
            is_member.then(|| group.parse().ok())?
        }
        _ => None,
    });
    let first = identity.group;
    identity.others = others.filter(|group| *group != first).collect();
    Ok(identity)
}

fn group_number(group: &Id, groups: &[u8]) -> Result<u32, NameError> {
    let name = match group {
        Id::Number(number) => return Ok(*number),
        Id::Name(name) => name,
    };
    let found = lines(groups).find_map(|fields| match fields[..] {
        [found, _, number, ..] if found == name => number.parse().ok(),
        _ => None,
    });
    found.ok_or_else(|| NameError {
        what: "group",
        name: name.clone(),
        file: GROUPS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS_OF_TEST: &[u8] = b"root:x:0:0:root:/root:/bin/bash\nodd\n\xff:x:1\n\
        me:x:1000:100:Me,,:/home/me:/bin/sh\nplain:x:7:8::\nwrong:x:a:1::/:\n";
    const GROUPS_OF_TEST: &[u8] = b"root:x:0:\nusers:x:100:me\nvideo:x:44:you,me\nme:x:9:meme\n";

    fn look_up(text: &str) -> Result<Identity, String> {
        let user = text.parse::<User>().map_err(|e| e.to_string())?;
        let found = user.look_up(USERS_OF_TEST, GROUPS_OF_TEST);
        found.map_err(|e| e.to_string())
    }

    #[test]
    fn numbers_need_no_files() {
        for (text, numbers) in [("7", (7, 7)), ("7:8", (7, 8)), ("0:video", (0, 44))] {
            let found = look_up(text).unwrap();
            assert_eq!((found.user, found.group), numbers, "{text}");
            assert_eq!((found.others, found.home), (Vec::new(), None));
        }
    }

    #[test]
    fn names_have_the_groups_and_the_home_of_the_root_file_system() {
        let me = look_up("me").unwrap();
        assert_eq!((me.user, me.group, me.others), (1000, 100, vec![44]));
        assert_eq!(me.home, Some("/home/me".into()));
        // A group that is given is the only one.
        let me = look_up("me:root").unwrap();
        assert_eq!((me.user, me.group, me.others), (1000, 0, Vec::new()));
        assert_eq!(look_up("plain:5").unwrap().home, None);
    }

    #[test]
    fn unknown_names_are_told_with_the_file() {
        for (text, parts) in [
            ("you", ["no user you", USERS]),
            ("wrong", ["no user wrong", USERS]),
            ("me:wheel", ["no group wheel", GROUPS]),
        ] {
            let told = look_up(text).unwrap_err();
            assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        }
    }

    #[test]
    fn what_is_no_user_is_refused_and_the_rest_comes_back() {
        for bad in [
            "",
            ":",
            "1:",
            ":1",
            "1:2:3",
            "-1",
            "4294967295",
            "1 ",
            "a b",
            "a\n",
            "+",
        ] {
            assert_eq!(bad.parse::<User>(), Err(UserError), "{bad}");
        }
        for good in ["0", "1:2", "me", "me:video", "_apt:65534", "a-b.c$"] {
            assert_eq!(good.parse::<User>().unwrap().to_string(), good);
        }
    }
}
