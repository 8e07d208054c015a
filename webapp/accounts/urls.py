"""Addresses about people."""

from __future__ import annotations

from django.urls import path

from webapp.accounts import views, views_admin, views_tokens

app_name = "accounts"
urlpatterns = [
    path("login/", views.Login.as_view(), name="login"),
    path("logout/", views.logout, name="logout"),
    path("link/<str:token>", views.link, name="link"),
    path("profile/", views.profile, name="profile"),
    path("theme/", views.theme, name="theme"),
    path("tokens/", views_tokens.tokens, name="tokens"),
    path("tokens/<int:pk>/revoke/", views_tokens.revoke, name="token_revoke"),
    path("users/", views_admin.users, name="users"),
    path("users/invite/", views_admin.invite, name="invite"),
    path("users/<int:pk>/", views_admin.user, name="user"),
    path("users/<int:pk>/role/", views_admin.change_role, name="change_role"),
    path("users/<int:pk>/link/", views_admin.password_link, name="password_link"),
    path("users/<int:pk>/deactivate/", views_admin.deactivate, name="deactivate"),
    path("users/<int:pk>/reactivate/", views_admin.reactivate, name="reactivate"),
    path("audit/", views_admin.audit, name="audit"),
]
